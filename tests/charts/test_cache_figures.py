"""Charts of the caches from saved tables: no simulation is needed to draw or to test them."""

import altair as alt
import numpy as np
import pandas as pd
import pytest

from mooncake_companion.charts import cache_capacity, cache_sharing, hot_blocks

ORIGINS = ("modelled", "reported")


def _saved(rows):
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"trace": "conversation"}
    return table


def capacity_table():
    return _saved(
        {
            "origin": origin,
            "workload": workload,
            "capacity_tokens": tokens,
            "hit_ratio": ratio + (0.02 if origin == "reported" and tokens == 10**6 else 0.0),
        }
        for origin in ORIGINS
        for workload in ("synthetic", "conversation")
        for tokens, ratio in ((10**4, 0.05), (10**6, 0.2), (10**9, 0.4))
    )


def sizes_table():
    return _saved(
        {
            "workload": "conversation",
            "capacity_tokens": tokens,
            "block_tokens": size,
            "hit_ratio": 0.4 - size / 10_000,
            "error_points": -size / 100,
        }
        for size in (16, 512)
        for tokens in (10**4, 10**9)
    )


def sharing_table():
    return _saved(
        {
            "origin": origin,
            "workload": "conversation",
            "cache": cache,
            "hit_rate_pct": 17.0 if cache == "local" else 37.0,
            "prefill_gpu_time_s": 1.5 if cache == "local" else 1.25,
        }
        for origin in ORIGINS
        for cache in ("local", "global")
    )


def shortlists_table():
    modelled = [
        {
            "origin": "modelled",
            "workload": "conversation",
            "cache": cache,
            "rule": "shortlist",
            "shortlist_nodes": weighed,
            "hit_rate_pct": 13.0 + weighed,
        }
        for cache in ("local", "global")
        for weighed in (1.0, 10.0)
    ]
    drawn = {**modelled[0], "origin": "reported", "rule": "as reported", "shortlist_nodes": np.nan}
    return _saved([*modelled, drawn])


def replicas_table():
    return _saved(
        {
            "origin": origin,
            "workload": workload,
            "key_rank": rank,
            "time_s": time_s,
            "replica_count": time_s / 30,
            "low": 0.0 if origin == "modelled" else np.nan,
            "high": 3.0 if origin == "modelled" else np.nan,
        }
        for origin in ORIGINS
        for workload in ("conversation", "toolagent")
        for rank in (10, 100)
        for time_s in (0.0, 30.0, 60.0)
    )


CHARTS = {
    "cache-capacity": lambda: cache_capacity.capacity(capacity_table()),
    "cache-capacity-block-sizes": lambda: cache_capacity.block_sizes(sizes_table()),
    "cache-sharing": lambda: cache_sharing.sharing(sharing_table()),
    "cache-sharing-shortlists": lambda: cache_sharing.shortlists(shortlists_table()),
    "hot-block-replicas": lambda: hot_blocks.replicas(replicas_table()),
}


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_valid_survives_json_and_carries_what_made_it(name):
    spec = CHARTS[name]().to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]["trace"] == "conversation"
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"


def test_descriptions_say_what_the_figures_show():
    described = {name: chart().to_dict()["description"] for name, chart in CHARTS.items()}
    assert "largest difference 2.0 percentage points" in described["cache-capacity"]
    assert "0.2 with blocks of 16, 5.1 with blocks of 512" in described["cache-capacity-block-sizes"]
    assert "Conversation, modelled: local 17.0 % and 1.50 s" in described["cache-sharing"]
    assert "14 % with 1 weighed, 23 % with 10" in described["cache-sharing-shortlists"]
    assert "Tool and agent, reported: 2" in described["hot-block-replicas"]


def test_panels_come_in_the_papers_order_on_common_scales():
    spec = CHARTS["cache-capacity"]().to_dict()
    assert [panel["title"]["text"] for panel in spec["concat"]] == ["Conversation", "Synthetic"]
    assert spec["resolve"]["scale"] == {"x": "shared", "y": "shared"}


def test_ranks_keep_their_headings_with_their_panels():
    """A list to sort by would move the headings, and leave the panels."""
    spec = CHARTS["hot-block-replicas"]().to_dict()
    assert "sort" not in spec["facet"]
    assert [param["bind"]["options"] for param in spec["params"]] == [["conversation", "toolagent"]]
