"""One function a figure: a tidy table becomes an Altair chart; nothing of ours is imported."""

from mooncake_companion.charts import theme

__all__ = ["theme"]
