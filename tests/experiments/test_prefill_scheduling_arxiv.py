"""arXiv 2407.00079, Figure 8, on a small stand-in."""

import pandas as pd
import pytest

from mooncake_companion import reported, traces
from mooncake_companion.experiments import prefill_scheduling_arxiv
from mooncake_companion.experiments.prefill_scheduling_arxiv import Params

SMALL = Params(trace="conversation-standin", nodes=4, prefill_nodes=2, replicates=2, arrival_speedup=0.25)


@pytest.fixture(scope="module")
def small():
    head = traces.load(SMALL.trace).head(300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "load", lambda name: head)
        yield


def test_the_reported_boxes_are_those_of_the_report(small):
    table = prefill_scheduling_arxiv.run(SMALL)
    drawn = table.query("origin == 'reported'").set_index("policy")
    assert drawn["mean_s"].tolist() == [6.26, 14.36, 60.41, 92.07]
    assert drawn["ratio_to_global"].round(2).tolist() == [1.0, 2.29, 9.65, 14.71]
    assert set(drawn.index) == set(table.query("origin == 'modelled'")["policy"])
    assert table.attrs["provenance"]["parameters"]["nodes"] == 4


def test_claims_are_all_rows_of_the_figures_boxes(small):
    stated = {row for row in reported.claims()["id"] if row.startswith("arxiv.fig08.ttft_")}
    values = prefill_scheduling_arxiv.claims(SMALL)
    assert set(values) == stated
    boxes = prefill_scheduling_arxiv.run(SMALL).query("origin == 'modelled' and prefill_nodes == 2")
    median_s = boxes.set_index("policy")["median_s"]["Load balancing"]
    assert values["arxiv.fig08.ttft_median.load_balancing"] == median_s


def test_the_nearest_split_is_the_one_with_the_least_factor():
    rows = [("reported", 8, "a", 4.0), ("reported", 8, "b", 9.0)]
    rows += [("modelled", 7, "a", 8.0), ("modelled", 7, "b", 9.0)]
    rows += [("modelled", 8, "a", 1.0), ("modelled", 8, "b", 1.0)]
    table = pd.DataFrame(rows, columns=["origin", "prefill_nodes", "policy", "mean_s"])
    split, factor = prefill_scheduling_arxiv.nearest_split(table)
    assert split == 7
    assert factor == pytest.approx(2**0.5)
