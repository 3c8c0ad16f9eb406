"""One function a figure: a tidy table becomes an Altair chart; nothing of ours is imported."""

from mooncake_companion.charts import (
    layerwise,
    network_bandwidth,
    prefill_pipeline,
    prefill_scheduling,
    scoreboard,
    storage_for_compute,
    tables,
    theme,
    transfer,
)

__all__ = [
    "layerwise",
    "network_bandwidth",
    "prefill_pipeline",
    "prefill_scheduling",
    "scoreboard",
    "storage_for_compute",
    "tables",
    "theme",
    "transfer",
]
