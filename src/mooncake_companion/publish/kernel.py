"""Run chapters with this very interpreter, whatever kernels the machine knows."""

import json
import os
import sys
from pathlib import Path

from mooncake_companion.datafiles import replacing

KERNEL_NAME = "python3"


def use_this_interpreter(folder: Path) -> None:
    """Make ``python3`` mean the running interpreter, for this process and those it starts.

    Parameters
    ----------
    folder : Path
        Where the kernel's description is written.
    """
    kernel = folder / "kernels" / KERNEL_NAME
    kernel.mkdir(parents=True, exist_ok=True)
    description = {
        # Warnings off: one tells of unencrypted TCP at each start, though it never leaves the machine.
        "argv": [
            sys.executable,
            "-m",
            "ipykernel_launcher",
            "--log-level=CRITICAL",
            "-f",
            "{connection_file}",
        ],
        "display_name": "Python 3",
        "language": "python",
    }
    with replacing(kernel / "kernel.json") as part:  # another process may be reading it
        part.write_text(json.dumps(description, indent=1), "utf-8")
    others = [path for path in os.environ.get("JUPYTER_PATH", "").split(os.pathsep) if path]
    if str(folder) not in others:
        os.environ["JUPYTER_PATH"] = os.pathsep.join([str(folder), *others])
