"""The file of a cursor, of any content: an input is its head and the first of its runs."""

from __future__ import annotations

import tempfile

import numpy as np

from condor_joblens.export import cursor
from condor_joblens.export.cursor import Cursor, RunIndex

_RUNS_AT = 4096


def _head(**values: int) -> bytes:
    head: np.ndarray = np.zeros(1, cursor._HEAD)
    head["magic"] = cursor._MAGIC
    for name, value in values.items():
        head[name] = value
    return head.tobytes()


_RUN_BYTES = np.array([(7, 3, 0), (9, 1, 1), (7, 2, 2)], cursor._RUN).tobytes()
SEEDS = [_head(identity=5, event=100, spooled=3, undeclared=2) + _RUN_BYTES, _head(declaring=(1 << 64) - 1), b"JLCURS1"]
WORDS = [b"JLCURS2\0", b"\xff" * 8]


def check(data: bytes) -> None:
    """It is taken over or begun anew, and goes on; the file is whole afterwards."""
    head, runs = data[: cursor._HEAD.itemsize], data[cursor._HEAD.itemsize :][: cursor._BYTES - _RUNS_AT]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = f"{folder}/cursor"
        with open(path, "wb") as file:
            file.write(head)
            file.seek(_RUNS_AT)
            file.write(runs)
            file.truncate(cursor._BYTES)
        taken = Cursor(path, RunIndex())
        identity, number = taken.event
        taken.set_event(identity, number)
        taken.lose("overflow", 1)
        name, losses = taken.declare()
        assert name and losses
        taken.confirm_declared()
        assert not Cursor(path, RunIndex()).is_new
