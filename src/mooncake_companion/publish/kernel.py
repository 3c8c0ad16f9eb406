"""Run chapters with this very interpreter, whatever kernels the machine knows."""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from mooncake_companion.datafiles import replacing

KERNEL_NAME = "python3"

_LONGEST_FOLDER = 70
"""Of temporary files, in bytes; a socket's path may have 103."""


class SocketProvisioner(LocalProvisioner):
    """Start a kernel that is spoken to over sockets in a folder of its own.

    Jupyter's own way is TCP: it looks for five free ports, lets go of them and passes their numbers to
    the kernel, and when several kernels start at once another may have taken one by then. Where there
    are no such sockets (Windows) or their paths would be too long, it is TCP.
    """

    _folder: str | None = None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Choose the sockets before the command line is made."""
        manager = self.parent
        fits = sys.platform != "win32" and len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_FOLDER
        if fits and manager is not None and self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="kernel-")
            manager.transport = "ipc"
            manager.ip = str(Path(self._folder, "socket"))
        prepared: dict[str, Any] = await super().pre_launch(**kwargs)
        return prepared

    async def cleanup(self, restart: bool = False) -> None:
        """Remove the folder once the kernel is gone."""
        await super().cleanup(restart)
        if self._folder is not None and not restart:
            shutil.rmtree(self._folder, ignore_errors=True)


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
        # Warnings off: one tells of unencrypted sockets at each start, though nothing leaves the machine.
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
        "metadata": {"kernel_provisioner": {"provisioner_name": "mooncake-sockets"}},
    }
    with replacing(kernel / "kernel.json") as part:  # another process may be reading it
        part.write_text(json.dumps(description, indent=1), "utf-8")
    others = [path for path in os.environ.get("JUPYTER_PATH", "").split(os.pathsep) if path]
    if str(folder) not in others:
        os.environ["JUPYTER_PATH"] = os.pathsep.join([str(folder), *others])
