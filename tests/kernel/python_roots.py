"""Roots of Debians with a Python of their own, in which tests have a folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


@contextmanager
def root_of(version: str) -> Iterator[Path]:
    """The root of the Debian with this Python. Its /tmp can be written in, also in a guest, which can't write here."""
    said = subprocess.run([CHECKOUT / "tests" / "pythons", version], stdout=subprocess.PIPE, text=True, check=True)
    root = Path(said.stdout.strip())
    if os.access(root / "tmp", os.W_OK):
        yield root
        return
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", root / "tmp"], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", "-l", root / "tmp"], check=True)
