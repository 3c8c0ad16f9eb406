"""Overload's charts from saved tables."""

import altair as alt
import pandas as pd
import pytest

from mooncake_companion.charts import overload

POLICIES = list(overload.POLICIES)


def saved(rows):
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"trace": "conversation"}
    return table


def rejected_table():
    modelled = [
        {
            "origin": "modelled",
            "policy": policy,
            "requests": 1000,
            "rejected": 200 - 10 * rank,
            "rejected_at_arrival": 50 * rank,
            "rejected_after_prefill": 200 - 60 * rank,
            "rejected_share": 0.2 - 0.01 * rank,
        }
        for rank, policy in enumerate(POLICIES)
    ]
    stated = [
        {"origin": "reported", "policy": policy, "requests": 23000, "rejected": 4600, "rejected_share": 0.2}
        for policy in POLICIES
    ]
    none = {"origin": "modelled", "policy": "No rejection", "requests": 1000, "rejected": 0}
    return saved([none, *modelled, *stated])


def loads_table(origins=("modelled", "reported")):
    return saved(
        [
            {
                "origin": origin,
                "policy": policy,
                "pool": pool,
                "time_s": time_s,
                "load": 0.25 + 0.01 * time_s + 0.1 * (pool == "Decode"),
            }
            for origin in origins
            for policy in (POLICIES if origin == "modelled" else POLICIES[1:2])
            for pool in ("Prefill", "Decode")
            for time_s in (0.0, 15.0, 30.0)
        ]
    )


def offered_table():
    return saved(
        [
            {
                "policy": policy,
                "offered_decode_load": load,
                "arrival_speedup": 2 * load,
                "rejected_share": 0.1 * load + 0.01 * rank,
                "prefill_wasted_share": 0.1,
                "goodput_requests_per_s": 5.0,
            }
            for load in (1.0, 2.0)
            for rank, policy in enumerate(POLICIES)
        ]
    )


def decode_time_table():
    return saved(
        [
            {
                "policy": policy,
                "multiple": multiple,
                "predicted_decode_s": 20 * multiple,
                "rejected": 1200 - (200 * multiple if rank == 2 else 0),
                "rejected_after_prefill": 100,
            }
            for multiple in (1.0, 3.0)
            for rank, policy in enumerate(POLICIES)
        ]
    )


def swings_table():
    return saved(
        [
            {
                "policy": policy,
                "varied": varied,
                "value": value,
                "prefill_std": 0.01 * value,
                "decode_std": 0.1,
                "correlation": -0.5,
            }
            for varied in ("Prompt tokens", "Prefill nodes")
            for value in (8, 16)
            for policy in POLICIES
        ]
    )


CHARTS = {
    "overload-rejected": lambda: overload.rejected(rejected_table()),
    "overload-pool-loads": lambda: overload.loads(loads_table()),
    "overload-mechanism": lambda: overload.mechanism(
        loads_table(("modelled",)).assign(input_tokens=8192), input_tokens=8192
    ),
    "overload-swings": lambda: overload.swings(swings_table()),
    "overload-offered-load": lambda: overload.offered(offered_table()),
    "overload-decode-time": lambda: overload.decode_time(decode_time_table()),
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
    assert "Baseline 20.0%, Early rejection 19.0%" in described["overload-rejected"]
    assert "No rejection" not in described["overload-rejected"]
    assert "Early rejection: prefill 25% to 55%, decode 35% to 65%." in described["overload-pool-loads"]
    assert "goes from 8% to 16% as prompts get longer" in described["overload-swings"]
    assert "At 2.00 times: Baseline 20.0%" in described["overload-offered-load"]
    assert "from 1,000 at 1 mean decode times to 600 at 3" in described["overload-decode-time"]
