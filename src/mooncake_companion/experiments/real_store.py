"""The cache model beside the real Mooncake Store: hit ratios on the same start of a trace, recorded.

``python -m benchmarks.real_store`` replays it into a store on this machine and into the models, and
writes ``data/recorded/real_store.json``; it takes about four minutes.
"""

import pandas as pd

from mooncake_companion.datafiles import read_json

REAL, STORE_RULE = "Real Mooncake Store", "Model of its rule"
LRU, LRU_AT_WATERMARK = "LRU", "LRU at 0.9 of the capacity"

_HITS = {
    REAL: "real_hits",
    STORE_RULE: "store_rule_hits",
    LRU: "lru_hits",
    LRU_AT_WATERMARK: "lru_at_watermark_hits",
}


def recorded() -> pd.DataFrame:
    """Hit ratios of the store and of three models of it, by capacity.

    Returns
    -------
    DataFrame
        Columns: ``cache`` (`REAL`, `STORE_RULE`, `LRU` or `LRU_AT_WATERMARK`), ``capacity_blocks``,
        ``hits`` (leading blocks found), ``hit_ratio`` (share of all blocks asked for), ``points``
        (difference to the real store, in percentage points).
    """
    record = read_json("recorded", "real_store.json")
    rows = [
        {
            "cache": cache,
            "capacity_blocks": row["capacity_blocks"],
            "hits": row[column],
            "hit_ratio": row[column] / row["blocks"],
            "points": 100 * (row[column] - row["real_hits"]) / row["blocks"],
        }
        for row in record["rows"]
        for cache, column in _HITS.items()
    ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {
        "trace": ", ".join(record["traces"]),
        "trace_sha256": ", ".join(record["traces"].values()),
        "parameters": record["parameters"],
        "packages": record["packages"],
        "made_by": record["made_by"],
        "sources_sha256": record["sources_sha256"],
    }
    return table


def agreement() -> dict[str, float]:
    """What the comparison was and how it went, in single numbers.

    Returns
    -------
    dict
        ``replays``, ``requests`` and ``blocks`` (of each replay), ``evictions`` (of the real store, in
        all), ``requests_compared`` and ``requests_alike`` (over all replays), ``lru_points``
        (LRU's greatest difference), ``infinite_ratio`` (hit ratio of a cache without end).
    """
    record = read_json("recorded", "real_store.json")
    rows, table = record["rows"], recorded()
    return {
        "replays": len(rows),
        "requests": rows[0]["requests"],
        "blocks": rows[0]["blocks"],
        "evictions": sum(row["real_evictions"] for row in rows),
        "requests_compared": sum(row["requests"] for row in rows),
        "requests_alike": sum(row["requests_alike"] for row in rows),
        "lru_points": float(table.loc[table["cache"] == LRU, "points"].max()),
        "infinite_ratio": record["infinite_hits"] / rows[0]["blocks"],
    }
