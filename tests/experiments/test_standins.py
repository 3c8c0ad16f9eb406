import dataclasses

import numpy as np
import pytest

from mooncake_companion import reported, traces
from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import standins
from mooncake_companion.traces.workload import LEVELS, format_workload

LIMIT_POINTS = 2.0


def released(name):
    if traces.locate(name) is None:
        pytest.skip(f"the released {name} trace is not on this machine; set MOONCAKE_TRACES to its folder")
    return traces.load(name)


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_hit_ratios_are_those_of_the_released_trace_at_every_capacity(name):
    """Within 2 points wherever an LRU cache holds 100,000 to 100,000,000 tokens."""
    one, other = standins.lru_curve(released(name)), standins.lru_curve(traces.standin(name))
    capacities = np.arange(100_000 // traces.BLOCK_TOKENS, 100_000_000 // traces.BLOCK_TOKENS + 1)
    ratios = [curve[np.minimum(capacities, len(curve) - 1)] for curve in (one, other)]
    assert np.abs(ratios[1] - ratios[0]).max() <= LIMIT_POINTS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_a_stand_in_is_as_good_as_the_released_trace(name):
    """Hit ratios within 2 points, length quantiles within 3 %, what the model makes of it within 10 %."""
    released(name)
    table = standins.fidelity(name)
    assert table.loc[~table["within"]].empty, table.loc[~table["within"]].to_string()
    assert dict(table.groupby("quantity")["limit"].max()) == {
        "LRU hit ratio": LIMIT_POINTS,
        "input length": 0.03,
        "output length": 0.03,
        "requests within the TBT limit": 0.1,
    } | ({"mean TTFT over that of global cache aware": 0.1} if name == "conversation" else {})
    assert table.attrs["provenance"]["trace"] == name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_seeds_scatter_around_the_released_trace(name):
    """The mean of six hit-ratio curves is within 2 points, and none of them beyond 5."""
    capacities = np.arange(100_000 // traces.BLOCK_TOKENS, 100_000_000 // traces.BLOCK_TOKENS + 1)

    def ratios(trace):
        curve = standins.lru_curve(trace)
        return curve[np.minimum(capacities, len(curve) - 1)]

    workload = traces.load_workload(name)
    made = [ratios(traces.generate(workload, np.random.default_rng(seed))) for seed in range(6)]
    errors = np.stack(made) - ratios(released(name))
    assert np.abs(errors.mean(0)).max() <= LIMIT_POINTS
    assert np.abs(errors).max() <= 5.0


@pytest.mark.slow
def test_fidelity_can_be_measured_for_another_seed():
    released("synthetic")
    first, other = standins.fidelity("synthetic"), standins.fidelity("synthetic", seed=1)
    assert not np.array_equal(first["standin"], other["standin"])
    assert np.array_equal(first["released"], other["released"])


def test_a_stand_in_is_not_compared_with_itself(monkeypatch, tmp_path):
    monkeypatch.delenv("MOONCAKE_TRACES", raising=False)
    monkeypatch.setenv("MOONCAKE_CACHE", str(tmp_path))
    monkeypatch.setenv("MOONCAKE_OFFLINE", "1")
    with pytest.raises(InputError, match="the released synthetic trace cannot be had"):
        standins.fidelity("synthetic")


def test_the_lru_curve_is_that_of_every_capacity():
    trace = traces.Trace.from_requests([(0.0, 1024, 1, [0, 1]), (1.0, 600, 1, [0, 2])])
    assert standins.lru_curve(trace).tolist() == [0.0, 0.0, 25.0, 25.0]


def test_the_committed_workloads_are_those_made_from_the_papers():
    """That each number in them can be made again from what is reported."""
    made = standins.described()
    for name, workload in made.items():
        kept = data_path("workloads", f"{name}.toml").read_text("utf-8")
        assert format_workload(workload, made_by=standins.COMMAND) == kept
    assert set(made) == {"toolagent", "arxiv", *traces.generated()}


@pytest.mark.parametrize(
    ("name", "claimed"), [("toolagent", "fast25.table2.toolagent"), ("arxiv", "arxiv.trace")]
)
def test_online_stand_ins_have_the_printed_size_and_answer(name, claimed):
    trace = traces.standin(name)
    assert len(trace) == reported.claim(f"{claimed}.requests")
    assert trace.output_tokens.mean() == pytest.approx(reported.claim(f"{claimed}.output"), rel=0.005)
    assert trace.input_tokens.mean() == pytest.approx(
        reported.claim("fast25.table2.toolagent.input"), rel=0.005
    )
    assert traces.tick_s(trace) == 3.0


def test_the_tool_and_agent_stand_in_hits_as_in_figure_9():
    """Within 2 points at each drawn capacity from 100,000 tokens on."""
    drawn = reported.figure("fast25_fig09").query("workload == 'toolagent' and capacity_tokens >= 1e5")
    curve = standins.lru_curve(traces.standin("toolagent"))
    blocks = (drawn["capacity_tokens"] // traces.BLOCK_TOKENS).astype(int).clip(upper=len(curve) - 1)
    np.testing.assert_allclose(curve[blocks], 100 * drawn["hit_rate"], atol=LIMIT_POINTS)


@pytest.mark.parametrize("blocks", [1000, 10000, 30000, 50000, 100000])
def test_the_arxiv_stand_in_hits_as_in_table_1(blocks):
    curve = standins.lru_curve(traces.standin("arxiv"))
    printed = reported.claim(f"arxiv.table1.lrucache.{blocks}")
    assert curve[blocks] == pytest.approx(100 * printed, abs=LIMIT_POINTS)


def test_lengths_of_the_online_stand_ins_are_those_of_figure_5():
    """Each count to as many requests as lie between two knots of the quantiles, 0.5 %."""
    trace = traces.standin("toolagent")
    figure = reported.figure("arxiv_fig05")
    for quantity, column in (("input_length", trace.input_tokens), ("output_length", trace.output_tokens)):
        drawn = figure[figure["quantity"] == quantity]
        counts = [
            ((column >= low) & (column < high)).sum()
            for low, high in zip(drawn["bin_low_tokens"], drawn["bin_high_tokens"], strict=True)
        ]
        np.testing.assert_allclose(counts, drawn["requests"], atol=0.0051 * len(trace))


@pytest.mark.parametrize(
    ("name", "claimed", "least", "most"),
    [
        ("arxiv-summarization", "arxiv_summarization", 0.0, 0.0),
        ("l-eval", "l_eval", 0.8, 0.85),
        ("simulated-16k", "simulated", 0.49, 0.5),
        ("simulated-128k", "simulated", 0.49, 0.5),
    ],
)
def test_benchmarks_have_what_table_2_prints(name, claimed, least, most):
    trace = traces.load(name)
    assert trace.output_tokens.mean() == pytest.approx(
        reported.claim(f"arxiv.table2.{claimed}.output"), rel=0.01
    )
    if claimed == "simulated":
        tokens = int(name.removeprefix("simulated-").removesuffix("k")) * 1024
        assert set(trace.input_tokens.tolist()) == {tokens}
    else:
        printed = reported.claim(f"arxiv.table2.{claimed}.input")
        assert trace.input_tokens.mean() == pytest.approx(printed, rel=0.02)
    assert least <= traces.infinite_cache_hit_ratio(trace) <= most
    gaps_s = np.diff(trace.arrival_s)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.0, abs=0.1)


def test_a_histogram_becomes_quantiles_of_its_mean():
    low, high, counts = np.array([0.0, 10.0]), np.array([10.0, 20.0]), np.array([1.0, 3.0])
    row = dict(zip(LEVELS, standins._quantiles(low, high, counts), strict=True))
    assert (row[0.0], row[0.25], row[1.0]) == (0.0, 10.0, 20.0)
    lower = standins._quantiles(low, high, counts, mean=10.0)
    assert standins._mean(lower) == pytest.approx(10.0, rel=0.01)
    assert dict(zip(LEVELS, lower, strict=True))[0.25] == 10.0


def test_workloads_vary_by_their_assumptions():
    assert standins.toolagent(returns=0.2) != standins.toolagent()
    more, less = (
        traces.generate(
            dataclasses.replace(standins.arxiv(returns=share), requests=3000), np.random.default_rng(0)
        )
        for share in (0.5, 0.2)
    )
    assert traces.infinite_cache_hit_ratio(more) > traces.infinite_cache_hit_ratio(less) + 0.05


def test_the_printed_mean_prompt_leaves_hardly_any_room():
    """As said of the arXiv stand-in: all other prompts in the lowest 4 % of their bins."""
    assert 0 < standins.room_for_printed_mean() < 0.045


def test_only_traces_that_can_be_had_are_compared_with_their_stand_ins(monkeypatch, tmp_path):
    monkeypatch.setenv("MOONCAKE_TRACES", str(tmp_path))
    monkeypatch.setenv("MOONCAKE_OFFLINE", "1")
    monkeypatch.setattr(standins.traces, "load", standins.traces.standin)
    nothing = standins.kept()
    assert len(nothing) == 0
    assert {"workload", "within", "error"} <= set(nothing.columns)
