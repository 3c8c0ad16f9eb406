"""Charts of the prefill pool, from small runs, and what their controls draw."""

import re

import altair as alt
import pytest
import vl_convert

from mooncake_companion.charts import layerwise, prefill_pipeline
from mooncake_companion.experiments import layerwise as layerwise_experiment
from mooncake_companion.experiments import prefill_pipeline as experiment
from mooncake_companion.publish.figures import VEGA_LITE_VERSION

PARAMS = experiment.Params(requests=100, short_tokens=2048, long_tokens=16_384)
CHARTS = {
    "prefill-pipeline-stages": lambda: prefill_pipeline.gantt(
        experiment.stages(PARAMS), pipeline_nodes=4, chunk_tokens=4096
    ),
    "prefill-pipeline-speedup": lambda: prefill_pipeline.speedup(experiment.alone(PARAMS), chunk_tokens=1024),
    "prefill-pipeline-load": lambda: prefill_pipeline.under_load(experiment.run(PARAMS)),
    "layerwise-store": lambda: layerwise.added(layerwise_experiment.run(layerwise_experiment.Params())),
}


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_valid_survives_json_and_carries_what_made_it(name):
    spec = CHARTS[name]().to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]["parameters"]
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"


def test_descriptions_say_what_the_figures_show():
    table = experiment.stages(PARAMS)
    described = CHARTS["prefill-pipeline-stages"]().to_dict()["description"]
    end_s = table.query("pipeline_nodes == 8 and chunk_tokens == 4096 and prompt == 'long'")["end_s"].max()
    assert f"8 nodes: long {end_s:.2f} s" in described
    assert "reported serialized 0.866 s" in CHARTS["layerwise-store"]().to_dict()["description"]


@pytest.mark.parametrize(("nodes", "chunk"), [(1, 1024), (4, 4096), (8, 16_384)])
def test_the_timeline_draws_the_chunks_of_what_is_chosen(nodes, chunk):
    spec = CHARTS["prefill-pipeline-stages"]().to_dict()
    for param in spec["params"]:
        param["value"] = {"stage_nodes": nodes, "stage_chunk": chunk}.get(param["name"], param["value"])
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
    chunks = -(-16_384 // chunk) + -(-2048 // chunk)
    assert len(re.findall(r'aria-roledescription="bar"', svg)) == nodes * chunks
