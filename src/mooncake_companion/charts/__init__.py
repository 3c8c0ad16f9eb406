"""One function a figure: a tidy table becomes an Altair chart; nothing of ours is imported."""

from mooncake_companion.charts import prefill_scheduling, scoreboard, tables, theme

__all__ = ["prefill_scheduling", "scoreboard", "tables", "theme"]
