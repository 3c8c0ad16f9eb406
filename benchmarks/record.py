"""Measure the day of a large service and keep what came out: `python -m benchmarks.record`."""

import json
import sys
from pathlib import Path

from mooncake_companion.datafiles import replacing

from .kimi_day import RECORDED, recording


def main(root: Path) -> None:
    """Measure and write."""
    text = json.dumps(recording(root), indent=2) + "\n"
    with replacing(root / RECORDED) as part:
        part.write_text(text, "utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(Path(__file__).parents[1])
