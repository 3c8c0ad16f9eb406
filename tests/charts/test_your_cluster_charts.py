"""Charts of a cluster of one's own, from tables that the experiment makes of a small trace."""

import altair as alt
import pandas as pd
import pytest
import vl_convert

from mooncake_companion.charts import your_cluster
from mooncake_companion.experiments import your_cluster as experiment
from mooncake_companion.publish.figures import VEGA_LITE_VERSION, to_svg

PARAMS = experiment.Params(model="deepseek-v3", node="h200", prefill_nodes=2, decode_nodes=2)


def nodes_table():
    rows = [
        {
            "node": node,
            "host_time": host_time,
            "speedup": speedup,
            "fits": node != "a800",
            **dict.fromkeys(("ttft_p50_s", "tbt_p50_s"), 0.1 * speedup),
            **dict.fromkeys(("ttft_p90_s", "tbt_p90_s"), 0.2 * speedup),
            "effective_capacity": 0.5,
            "goodput_requests_per_s": 7.25 if host_time else 9.75,
        }
        for node in ("a800", "h200")
        for host_time in (True, False)
        for speedup in (0.5, 1.0, 2.0)
    ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"trace": "made-up"}
    return table


def latencies_table():
    table = pd.DataFrame(
        {"system": system, "metric": metric, "seconds": 0.1 * (1 + share), "share": share}
        for system in your_cluster.SYSTEMS
        for metric in ("ttft", "tbt")
        for share in (0.0, 0.5, 1.0)
    )
    table.attrs["provenance"] = {"trace": "made-up"}
    return table


CHARTS = {
    "cluster-nodes": lambda: your_cluster.by_node(nodes_table(), ttft_limit_s=30.0, tbt_limit_s=0.1),
    "cluster-models": lambda: your_cluster.by_model(experiment.by_model(PARAMS)),
    "cluster-break-even": lambda: your_cluster.break_even(experiment.break_even(PARAMS), cached_tokens=8192),
    "simulated-latencies": lambda: your_cluster.latencies(latencies_table()),
}


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_valid_survives_json_and_carries_what_made_it(name):
    spec = CHARTS[name]().to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"


def test_descriptions_say_what_the_figures_show():
    described = {name: chart().to_dict()["description"] for name, chart in CHARTS.items()}
    assert "a800: the model does not fit; h200 TTFT 0.10 s" in described["cluster-nodes"]
    assert "DeepSeek-V3 70 KB" in described["cluster-models"]
    assert "133.0 GB/s for Llama-3.1-8B on b200" in described["cluster-break-even"]
    assert "vLLM TBT 0.150 s" in described["simulated-latencies"]


def drawn(spec, **values):
    for param in spec["params"]:
        if param["name"] in values:
            param["value"] = values[param["name"]]
    return to_svg(spec)


def test_the_nodes_follow_host_and_speed():
    spec = CHARTS["cluster-nodes"]().to_dict()
    first = drawn(spec)
    assert first.count(">7.25<") == 1
    assert first.count(">does not fit<") == 1
    assert drawn(spec, host="false").count(">9.75<") == 1
    assert drawn(spec, host="true", speed=2) != first


def test_what_does_not_fit_has_no_number():
    spec = CHARTS["cluster-break-even"]().to_dict()
    pairs = experiment.break_even(PARAMS).query("cached_tokens == 8192")
    assert drawn(spec).count(">–<") == (~pairs["fits"]).sum() == 6
    assert ">42.3<" in drawn(spec)
    assert ">10.6<" in drawn(spec, rate="Equation 2 over the network's line rate (%)")


def test_the_models_show_the_chosen_quantity():
    spec = CHARTS["cluster-models"]().to_dict()
    assert ">70.3<" in drawn(spec)
    weights = drawn(spec, kept="Weights (GB)")
    assert ">671<" in weights
    assert ">Weights (GB)<" in weights


def test_the_exporter_draws_them_without_a_warning():
    for chart in CHARTS.values():
        assert vl_convert.vegalite_to_vega(chart().to_dict(), vl_version=VEGA_LITE_VERSION)
