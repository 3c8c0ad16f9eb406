"""Rates within limits: the rules of the experiment, on a stand-in for its data sets."""

import pandas as pd
import pytest

from mooncake_companion import reported, traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import request_rate
from mooncake_companion.experiments.request_rate import DATASETS, SYSTEMS, Params


@pytest.fixture
def standin(monkeypatch):
    """Every data set is the head of the synthetic stand-in."""
    head = traces.load("synthetic-standin").head(150)
    monkeypatch.setattr(traces, "load", lambda name: head)
    return head


def test_tested_rates_are_those_of_the_figure():
    assert request_rate.tested_rates("l-eval") == (0.1, 0.2, 0.5, 0.8, 1.0, 1.25, 1.5, 1.75, 2.0)
    assert request_rate.tested_rates("simulated-128k") == (0.02, 0.05, 0.1, 0.11, 0.12, 0.14)


def test_limits_are_multiples_of_the_best_at_the_lowest_rate(standin):
    table = request_rate.run(Params(dataset="simulated-32k"))
    modelled = table[table["origin"] == "modelled"]
    assert len(modelled) == 2 * len(SYSTEMS) * 4
    lowest = modelled[modelled["request_rate_per_s"] == 0.1].groupby("metric")["over_limit"].min()
    assert lowest["ttft"] == pytest.approx(1 / 10)
    assert lowest["tbt"] == pytest.approx(1 / 5)
    ttft_s = modelled.query("metric == 'ttft' and system == 'vLLM-[4M]'")["seconds"].to_list()
    assert ttft_s[0] < ttft_s[-1], "it waits longer at the highest rate"


def test_highest_rate_is_the_last_before_the_first_failure():
    rows = [
        {"origin": "modelled", "system": "s", "metric": m, "request_rate_per_s": r, "over_limit": x}
        for m, values in {"ttft": (0.1, 0.5, 2.0, 0.9), "tbt": (0.2, 1.1, 0.3, 0.3)}.items()
        for r, x in zip((1.0, 2.0, 3.0, 4.0), values, strict=True)
    ]
    assert request_rate.highest_rates(pd.DataFrame(rows)) == {"s": {"ttft": 2.0, "tbt": 1.0, "both": 1.0}}


def test_claims_cover_both_figures(standin):
    claimed = request_rate.claims()
    stated = {c for c in reported.claims()["id"] if c.startswith(("arxiv.fig11.", "arxiv.fig12."))}
    gains = {c for c in stated if ".gain" in c}  # none where the baseline keeps no limit
    assert stated - gains <= claimed.keys() <= stated | {"arxiv.headline.sim_gain"}
    for dataset in DATASETS:
        assert claimed["arxiv." + DATASETS[dataset].claim.format("max_rate_ttft") + ".vllm_4m"] >= 0


def test_nodes_come_in_fours():
    with pytest.raises(InputError, match="nodes: 6 is not a multiple of 4"):
        Params(nodes=6)


def test_which_limit_is_broken_first():
    rows = [
        {
            "origin": "modelled",
            "dataset": "d",
            "system": system,
            "metric": m,
            "request_rate_per_s": r,
            "over_limit": x,
        }
        for system, metrics in {
            "a": {"ttft": (0.1, 1.5), "tbt": (0.2, 0.3)},
            "b": {"ttft": (0.1, 1.5), "tbt": (1.2, 0.3)},
            "c": {"ttft": (0.1, 1.5), "tbt": (0.2, 2.0)},
            "d": {"ttft": (0.1, 1.0), "tbt": (0.2, 1.0)},
        }.items()
        for m, values in metrics.items()
        for r, x in zip((1.0, 2.0), values, strict=True)
    ]
    first = request_rate.first_limits(pd.DataFrame(rows)).loc[("modelled", "d")]
    assert first.to_dict() == {"a": "ttft", "b": "tbt", "c": "both", "d": "none"}


def test_all_data_sets_in_one_table(standin):
    table = request_rate.on_every_dataset(Params(nodes=8))
    assert set(table["dataset"]) == set(DATASETS)
    assert "dataset" not in table.attrs["provenance"]["parameters"]
