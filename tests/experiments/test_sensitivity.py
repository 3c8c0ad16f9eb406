"""Sensitivity of the headlines: the analysis against known answers, the studies against the experiments."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from mooncake_companion import reported, traces
from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.experiments import cache_sharing, headlines, overload, prefill_scheduling, sensitivity
from mooncake_companion.experiments.headlines import STUDIES, Assumption, Headline, Study, one_of, study
from mooncake_companion.simulator import Routing, simulate

PACKAGE = Path(__file__).parents[2] / "src/mooncake_companion"


def between(name, low=-1.0, high=1.0, nominal=0.0):
    return Assumption(name=name, title=name, nominal=nominal, low=low, high=high, why="a test")


def known(model, kinds=("amount",), names=("x", "y"), workloads=()):
    """A study of a function of which the answer is known."""
    return Study(
        name="known",
        workloads=workloads,
        assumptions=tuple(between(name) for name in names),
        headlines=tuple(
            Headline(name=kind, title=kind, unit="", where="", reported=0.0, kind=kind) for kind in kinds
        ),
        model=model,
    )


def with_interaction(_, values):
    """x + x y: variances 1/3 and 1/9."""
    f = values["x"] + values["x"] * values["y"]
    return {"amount": f, "ratio": math.exp(f), "gain": 100 * (math.exp(f) - 1)}


@pytest.fixture(scope="module")
def shared_out():
    varied = known(with_interaction, ("amount", "ratio", "gain"))
    return sensitivity.sobol(varied, {}, 1024, np.random.default_rng(0), resamples=200)


@pytest.mark.parametrize("kind", ["amount", "ratio", "gain"])
def test_variance_is_shared_out_as_known(shared_out, kind):
    table = shared_out[shared_out["headline"] == kind].set_index("assumption")
    assert table.loc["x", "first"] == pytest.approx(3 / 4, abs=0.05)
    assert table.loc["x", "total"] == pytest.approx(1, abs=0.05)
    assert table.loc["y", "first"] == pytest.approx(0, abs=0.05)
    assert table.loc["y", "total"] == pytest.approx(1 / 4, abs=0.03)
    assert table.loc["x", "std"] == pytest.approx(math.sqrt(4 / 9), rel=0.02)


def test_intervals_hold_the_truth_and_shrink_with_points(shared_out):
    truth = {("x", "first"): 3 / 4, ("x", "total"): 1, ("y", "first"): 0, ("y", "total"): 1 / 4}
    table = shared_out[shared_out["headline"] == "amount"].set_index("assumption")
    few = sensitivity.sobol(known(with_interaction), {}, 32, np.random.default_rng(0), resamples=200)
    few = few.set_index("assumption")
    for (assumption, index), value in truth.items():
        low, high = table.loc[assumption, [f"{index}_low", f"{index}_high"]]
        assert low <= value <= high
        wide = few.loc[assumption, f"{index}_high"] - few.loc[assumption, f"{index}_low"]
        assert high - low < 0.5 * wide


def test_the_same_generator_gives_the_same_indices():
    one, other = (
        sensitivity.sobol(known(with_interaction), {}, 16, np.random.default_rng(5), resamples=20)
        for _ in range(2)
    )
    assert one.equals(other)


def test_what_never_varies_has_no_shares():
    flat = known(lambda _, values: {"amount": 7.0})
    table = sensitivity.sobol(flat, {}, 8, np.random.default_rng(0), resamples=10)
    assert (table[["first", "total", "total_high"]] == 0).all(axis=None)
    assert (table["mean"] == 7).all()


def test_one_assumption_is_varied_at_a_time():
    seen = []

    def model(_, values):
        seen.append(dict(values))
        return {"amount": values["x"] + 10 * values["y"]}

    table = sensitivity.one_at_a_time(known(model), {})
    assert all(sum(value != 0 for value in values.values()) <= 1 for values in seen)
    assert table.set_index(["assumption", "value"])["result"].to_dict() == {
        ("x", -1): -1,
        ("x", 1): 1,
        ("y", -1): -10,
        ("y", 1): 10,
    }
    assert (table["nominal"] == 0).all()


def test_quantiles_of_an_assumption():
    discrete = one_of("n", "n", 2, (1, 2, 8), why="a test")
    assert [discrete.at(u) for u in (0, 0.32, 0.34, 0.99, 1.0)] == [1, 1, 2, 8, 8]
    assert discrete.levels == (1, 2, 8)
    even = between("x", 1, 100, 50)
    assert (even.at(0), even.at(0.5), even.at(1)) == (1, 50.5, 100)
    tenfold = Assumption(name="x", title="x", nominal=10, low=1, high=100, logarithmic=True, why="a test")
    assert tenfold.at(0.5) == pytest.approx(10)
    assert tenfold.levels == (1, 100)


@pytest.mark.parametrize("wrong", [{"nominal": 2.0}, {"nominal": 0.5, "values": (0.0, 1.0)}])
def test_a_nominal_value_outside_the_range_is_refused(wrong):
    with pytest.raises(InputError, match="x: nominal"):
        Assumption(name="x", title="x", low=0.0, high=1.0, why="a test", **wrong)


def test_what_a_study_does_not_assume_is_refused():
    with pytest.raises(InputError, match="known does not assume z"):
        known(with_interaction)({}, {"z": 1.0})
    with pytest.raises(InputError, match="known are effective-capacity"):
        study("figure-1")


def test_stand_ins_differ_from_seed_to_seed_and_come_again():
    mean = known(lambda w, _: {"amount": float(w["l-eval"].input_tokens.mean())}, workloads=("l-eval",))
    one, again, other = (
        sensitivity.seed_spread([mean], 3, np.random.default_rng(seed))["result"] for seed in (0, 0, 1)
    )
    assert one.nunique() == 3
    assert one.equals(again)
    assert not one.equals(other)


def test_a_stand_in_is_not_recorded_as_the_released_trace():
    with pytest.raises(CompanionError, match="needs the released conversation-standin trace"):
        sensitivity.released(["conversation-standin"])


def test_arrivals_spread_over_their_tick_in_file_order():
    trace = traces.load("conversation-standin").head(2000)
    tick_s = traces.tick_s(trace)
    spread = headlines._replayed(trace, {"tick_spread": 1.0, "block_tokens": 512})
    moved_s = spread.arrival_s - trace.arrival_s
    assert (np.diff(spread.arrival_s) >= 0).all()
    assert moved_s.min() == 0
    assert 0.5 * tick_s < moved_s.max() < 1.01 * tick_s
    assert len(np.unique(spread.arrival_s)) > 3 * len(np.unique(trace.arrival_s))
    same = headlines._replayed(trace, {"tick_spread": 0.0, "block_tokens": 512, "arrival_speedup": 2.0})
    np.testing.assert_array_equal(same.arrival_s, trace.arrival_s / 2)


def test_constants_vary_within_their_confidence_intervals():
    constants = {each.name: each for each in headlines.fitted()}
    assert "prefill_overhead_s" in constants
    assert all(each.low < each.nominal < each.high for each in constants.values())
    prefill = {each.name for each in headlines.fitted(headlines._PREFILL_CONSTANTS)}
    assert prefill < constants.keys()
    assert not any(name.startswith(("decode", "hbm", "host")) for name in prefill)


def test_the_scheduling_study_is_the_experiment():
    trace = traces.load("conversation-standin").head(500)
    params = prefill_scheduling.Params()
    means_s = {
        routing: simulate(
            trace, params.cluster(routing, params.prefill_nodes), rng=np.random.default_rng(0)
        ).ttft_s.mean()
        for routing in Routing
    }
    results = study("prefill-scheduling")({"conversation": trace}, {})
    for routing in (Routing.LOCAL_CACHE_AWARE, Routing.LOAD_BALANCING, Routing.RANDOM):
        ratio = means_s[routing] / means_s[Routing.GLOBAL_CACHE_AWARE]
        assert results[f"fast25.fig05.ratio.{routing}"] == pytest.approx(ratio)


@pytest.fixture(scope="module")
def released():
    try:
        found = {name: traces.load(name, download=False) for name in ("conversation", "synthetic")}
    except CompanionError as reason:
        pytest.skip(str(reason))
    if any(trace.origin != "released" for trace in found.values()):
        pytest.skip("the released traces are not on this machine; set MOONCAKE_TRACES")
    return found


def test_the_sharing_study_is_the_experiment(released):
    expected = cache_sharing.claims()
    for name, value in study("cache-sharing")(released, {}).items():
        assert value == pytest.approx(expected[name])


@pytest.mark.slow
def test_the_overload_study_is_the_experiment(released):
    modelled = overload.run(overload.Params()).query("origin == 'modelled'").set_index("policy")
    results = study("overload")(released, {})
    for admission, name in zip(overload.REJECTING, ("baseline", "early", "predicted"), strict=True):
        expected = 23_000 * modelled.loc[overload.TITLES[admission], "rejected_share"]
        assert results[f"arxiv.table3.rejected.{name}"] == pytest.approx(expected)


@pytest.fixture(scope="module")
def record():
    return sensitivity.recorded()


def test_all_is_recorded(record):
    assert set(record["headlines"]["study"]) == set(STUDIES)
    names = set(record["headlines"]["headline"])
    assert len(names) == 13
    for table in ("one_at_a_time", "sobol", "seeds"):
        assert set(record[table]["headline"]) == names
        assert record[table].attrs["provenance"]["made_by"] == sensitivity.COMMAND
    known_claims = set(reported.claims()["id"])
    assert {name for name in names if ".ratio." not in name} <= known_claims
    assert record["seeds"].groupby("headline")["replicate"].nunique().eq(10).all()


def test_no_assumption_is_without_any_effect(record):
    """One whose name nobody reads would have none."""
    levels = record["one_at_a_time"].groupby(["study", "assumption"])
    moved = levels.apply(lambda rows: (rows["result"] != rows["nominal"]).any(), include_groups=False)
    assert moved.all(), moved[~moved]


def test_recorded_shares_are_shares(record):
    shares = record["sobol"]
    assert shares["total"].between(0, 1.6).all()
    assert (shares["total_low"] <= shares["total"]).all()
    assert (shares["total_high"] >= shares["total"]).all()
    assert (shares["first_low"] <= shares["total_high"] + 0.05).all()
    explained = shares.groupby("headline")["total"].sum()
    assert (explained > 0.95).all(), "totals add up to one or more, but for the scatter of the points"


def test_the_hash_looks_at_what_a_simulation_is_made_of():
    fast = {f"simulator/fast/{path.name}" for path in (PACKAGE / "simulator/fast").glob("*.py")}
    assert {Path(name).name for name in fast - set(sensitivity.SOURCES)} == {"__init__.py", "compiling.py"}
    assert all((PACKAGE / name).exists() for name in sensitivity.SOURCES)


@pytest.mark.slow
def test_what_is_recorded_is_of_these_sources():
    """Fails when a file that matters has changed since; the remedy takes minutes."""
    stored = json.loads(data_path(*sensitivity.RECORDED).read_text("utf-8"))
    assert stored["sources_sha256"] == sensitivity.sources_sha256(), (
        f"data/recorded/sensitivity.json was made by other sources; run: {sensitivity.COMMAND}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_sample_of_what_is_recorded_comes_out_again(name, record, released):
    stale = f"data/recorded/sensitivity.json is stale; run: {sensitivity.COMMAND}"
    varied = study(name)
    declared = record["assumptions"].query("study == @name").set_index("assumption")
    assert list(declared.index) == [each.name for each in varied.assumptions], stale
    for each in varied.assumptions:
        assert declared.loc[each.name, "nominal"] == pytest.approx(each.nominal, rel=1e-5), stale
        assert declared.loc[each.name, "high"] == pytest.approx(each.high, rel=1e-5), stale
    again = sensitivity.one_at_a_time(varied, released, [varied.assumptions[0], varied.assumptions[-1]])
    keys = ["headline", "assumption", "value"]
    table = record["one_at_a_time"].set_index(keys).sort_index()["result"]
    for row in again.itertuples():
        where = table.loc[(row.headline, row.assumption)]
        assert where.iloc[np.abs(where.index - row.value).argmin()] == pytest.approx(row.result, rel=1e-5), (
            stale
        )
