"""Charts of the chapters on workloads and the tiered cache from saved tables."""

import json
from xml.etree import ElementTree

import altair as alt
import pandas as pd
import pytest
import vl_convert

from mooncake_companion.charts import byte_flows, cache_capacity, cache_snapshot, prefix_choices, workloads


def saved(rows):
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"trace": "conversation"}
    return table


def snapshot_table():
    return saved(
        {
            "time_s": time_s,
            "node": node,
            "tier": tier,
            "slot": slot,
            "block": 10 * slot + node,
            "position": slot,
            "uses": 1 if slot else 5,
            "age_s": 1.5 * slot,
            "holders": "0, 1" if slot else "0",
            "copies": 2,
        }
        for time_s in (30, 60)
        for node in (0, 1)
        for tier, room in (("VRAM", 2), ("DRAM", 3), ("SSD", 30))
        for slot in range(room)
    )


PLACES = {
    "fetch": ("Another prefill node", "DRAM", "Prefill node", "DRAM"),
    "prefix_load": ("Prefill node", "DRAM", "Prefill node", "VRAM"),
    "store": ("Prefill node", "VRAM", "Prefill node", "DRAM"),
    "decode_load": ("Decode node", "DRAM", "Decode node", "VRAM"),
}


def flows_table():
    return saved(
        {
            "scenario": scenario,
            "way": way,
            "title": way.replace("_", " ").capitalize(),
            **dict(zip(("source_node", "source_tier", "target_node", "target_tier"), places, strict=True)),
            "bytes": 1e9 * (1 + number),
            "delay_s": 0.04 if way == "decode_load" else 0.0,
            "critical": way == "decode_load",
            "delayed_share": 1.0,
        }
        for scenario in ("Cold prompt", "Prefix in DRAM")
        for number, (way, places) in enumerate(PLACES.items())
    )


def choices_table():
    return saved(
        {
            "setting": setting,
            "time_s": time_s,
            "action": action,
            "requests": requests,
            "share": requests / 10,
            "reused_tokens": 512 * requests,
            "mean_input_tokens": 9000.0,
            "mean_reused_tokens": 512.0,
            "mean_ttft_s": 1.0,
        }
        for setting in ("A fetched prefix is copied", "Nothing is fetched")
        for time_s in (0.0, 120.0)
        for action, requests in (("hydrate", 7), ("replicate", 2), ("migrate", 0), ("recompute", 1))
    )


def policies_table():
    return saved(
        {
            "origin": origin,
            "title": policy,
            "capacity_blocks": blocks,
            "capacity": capacity,
            "hit_ratio": ratio,
        }
        for origin in ("modelled", "reported")
        for policy in ("LRU", "LFU", "FIFO")
        for blocks, capacity, ratio in ((1000, "1k", 0.3), (float("inf"), "all", 0.51))
    )


def distributions_table():
    return saved(
        {"workload": workload, "quantity": quantity, "level": level, "value": value * scale}
        for workload in ("conversation", "synthetic")
        for quantity, scale in (
            ("Prompt (tokens)", 1e4),
            ("Answer (tokens)", 100),
            ("Share of the prompt known", 1),
        )
        for level, value in ((0.25, 0.1), (0.5, 0.4), (1.0, 0.9))
    )


def arrivals_table():
    return saved(
        {"workload": "conversation", "view": view, "time_s": time_s, "window_s": 1.0, "requests": requests}
        for view in ("By the minute", "First two minutes")
        for time_s, requests in ((0.0, 9), (3.0, 12))
    )


def hits_table():
    return saved(
        {"origin": origin, "workload": "arxiv", "block_hit_count": count, "cdf": share}
        for origin in ("modelled", "reported")
        for count, share in ((1, 0.55), (100, 1.0))
    )


def histogram_table():
    return saved(
        {
            "origin": origin,
            "quantity": quantity,
            "bin_low_tokens": low,
            "bin_high_tokens": low + 100.0,
            "requests": 40,
        }
        for origin in ("modelled", "reported")
        for quantity in ("input_length", "output_length")
        for low in (0.0, 100.0)
    )


CHARTS = {
    "cache-block-heat": lambda: cache_snapshot.heat(snapshot_table()),
    "cache-byte-flows": lambda: byte_flows.flows(flows_table()),
    "prefix-choices": lambda: prefix_choices.over_time(choices_table(), window_s=120.0),
    "cache-policies": lambda: cache_capacity.policies(policies_table()),
    "workload-distributions": lambda: workloads.distributions(distributions_table()),
    "workload-known-shares": lambda: workloads.known_shares(distributions_table()),
    "workload-arrivals": lambda: workloads.arrivals(arrivals_table()),
    "workload-block-hits": lambda: workloads.block_hits(hits_table()),
    "workload-length-histograms": lambda: workloads.histograms(histogram_table()),
}
DESCRIBED = {
    "cache-block-heat": "4 in VRAM, 6 in DRAM, 60 in SSD; 91% of these were asked for once",
    "cache-byte-flows": "Cold prompt: 10.0 GB a request, on the critical path decode load",
    "prefix-choices": "Nothing is fetched: hydrate 70.0%, replicate 20.0%, recompute 10.0%",
    "cache-policies": "modelled 51%, reported 51%",
    "workload-distributions": "Prompt (tokens): Conversation 4,000, Synthetic 4,000",
    "workload-known-shares": "more than half of it: Conversation 50%, Synthetic 50%",
    "workload-arrivals": "Conversation 12",
    "workload-block-hits": "arXiv report (modelled) 55%, arXiv report (reported) 55%",
    "workload-length-histograms": "80 modelled, 80 reported",
}
CONTROLS = {
    "cache-block-heat": {"snapshot", "node", "colour"},
    "cache-byte-flows": {"scenario"},
    "prefix-choices": {"setting", "counted"},
    "workload-distributions": {"quantity"},
    "workload-arrivals": {"view"},
    "workload-length-histograms": {"length"},
}


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_valid_survives_json_and_carries_what_made_it(name):
    spec = CHARTS[name]().to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]["trace"] == "conversation"
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"


@pytest.mark.parametrize("name", CHARTS)
def test_descriptions_say_what_the_figures_show(name):
    assert DESCRIBED[name] in CHARTS[name]().to_dict()["description"]


@pytest.mark.parametrize("name", CHARTS)
def test_controls_start_at_a_value_that_they_offer(name):
    bound = {param["name"]: param for param in CHARTS[name]().to_dict().get("params", []) if "bind" in param}
    assert set(bound) == CONTROLS.get(name, set())
    for param in bound.values():
        offered = param["bind"].get("options") or range(param["bind"]["min"], param["bind"]["max"] + 1)
        assert param["value"] in offered


def svg(chart):
    return list(ElementTree.fromstring(vl_convert.vegalite_to_svg(json.dumps(chart.to_dict()))).iter())


def test_moves_run_between_their_places_and_side_by_side_where_two_share_them():
    marks = svg(byte_flows.flows(flows_table()))
    lines = {}
    for mark in marks:
        told = dict(
            part.split(": ", 1) for part in (mark.get("aria-label") or "").split("; ") if ": " in part
        )
        if mark.tag.endswith("line") and "Move" in told:
            lines[told["Move"]] = told | {"px": float(mark.get("stroke-width"))}
    assert list(lines) == ["Fetch", "Prefix load", "Store", "Decode load"]
    at = {move: [float(told[name]) for name in ("x", "y", "x2", "y2")] for move, told in lines.items()}
    assert at["Fetch"] == pytest.approx([0.2, 1, 0.8, 1])
    assert at["Prefix load"] == pytest.approx([0.82, 1.2, 0.82, 1.8]), "up, on the left"
    assert at["Store"] == pytest.approx([1.18, 1.8, 1.18, 1.2]), "down, on the right"
    assert at["Decode load"] == pytest.approx([2, 1.2, 2, 1.8])
    assert [told["From"] for told in lines.values()] == ["Network", "DRAM", "VRAM", "DRAM"]
    assert [told["path"] for told in lines.values()] == 3 * ["hidden"] + ["on the critical path"]
    assert [told["px"] for told in lines.values()] == pytest.approx([5.5, 11, 16.5, 22]), "bytes"


def heat_map(table):
    """The heat map as it is drawn: height of each text, and its cells' corners."""
    marks = svg(cache_snapshot.heat(table))
    heights = {
        text.text: float(text.get("transform").split(",")[1].rstrip(")")) for text in marks if text.text
    }
    return heights, [path.get("d") for path in marks if "Block: " in (path.get("aria-label") or "")]


def test_tiers_lie_below_each_other_in_their_order():
    heights, cells = heat_map(snapshot_table())
    assert heights["VRAM"] < heights["DRAM"] < heights["SSD"] < heights["after 60 s: 35 blocks on node 0"]
    assert len(cells) == len(set(cells)) == 35


def test_a_tier_that_is_left_out_takes_no_rows():
    table = snapshot_table()
    heights, cells = heat_map(table[table["tier"] != "VRAM"])
    assert "VRAM" not in heights
    assert heights["DRAM"] == heat_map(table)[0]["VRAM"]
    assert len(cells) == 33


def test_the_last_snapshot_is_shown_where_nothing_was_held_at_the_first():
    table = snapshot_table()
    spec = cache_snapshot.heat(table).to_dict()
    (name,) = spec["datasets"]
    spec["datasets"][name] = [row for row in spec["datasets"][name] if row["time_s"] == 60]
    assert "after 60 s: 35 blocks on node 0" in vl_convert.vegalite_to_svg(json.dumps(spec))


def test_no_row_moves_with_time_or_node():
    table = snapshot_table()
    late = table[(table["time_s"] == 60) & (table["node"] == 0) & (table["slot"] < 2)]
    fewer = pd.concat([table[(table["time_s"] == 30) | (table["node"] == 1)], late])
    fewer.attrs = table.attrs
    heights, cells = heat_map(fewer)
    assert len(cells) == len(late)
    assert {name: heights[name] for name in ("VRAM", "DRAM", "SSD")}.items() <= heat_map(table)[0].items()
