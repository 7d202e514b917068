"""Processes that joblensd starts for one purpose each: the same Python, a socket as descriptor 0, nothing else."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path


def command(module: str, *arguments: str) -> list[str]:
    """What runs a module of ours, with the Python that runs this one."""
    return [sys.executable, "-s", "-m", module, *arguments]


def start(command: list[str], channel: socket.socket, keep: Collection[int] = ()) -> subprocess.Popen[bytes]:
    """Starts a command with `channel` as descriptor 0, and the descriptors `keep`. Raises OSError.

    Of the environment nothing is passed on: it may hold the pool's secrets, and configuration.
    """
    root = str(Path(__file__).resolve().parents[2])
    return subprocess.Popen(
        command,
        stdin=channel.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=True,
        pass_fds=keep,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": ":/etc/localtime", "PYTHONPATH": root},
    )
