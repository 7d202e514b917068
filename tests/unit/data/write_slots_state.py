#!/usr/bin/env python3
"""Writes the table of runs of JobLens 0.1 with live jobs, and its layout as data. Run it in a checkout of 0.1.

    write_slots_state.py FILE.xz LAYOUT.py

Each number is made from its column's name, so that a test can tell where each belongs: see `number_of`.
"""

from __future__ import annotations

import importlib
import lzma
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

CAPACITY = 16
JOBS = (0, 2, 3, 7)
"""The places of those that live; the others were never used, or their runs are over."""

LEVELS = ("level_number", "decided_level", "decided_cap", "hand_level", "aimed", "over")


def number_of(name: str, place: int) -> int:
    """What is in the column of that name (`offset.cpu_seconds`) of the run at `place`."""
    return zlib.crc32(name.encode()) % 1_000_000_007 + place


def fill(record: np.ndarray, name: str, place: int) -> None:
    """Fills `record`, of any type and shape, with numbers of its own."""
    if record.dtype.names:
        for column in record.dtype.names:
            fill(record[column], f"{name}{column}.", place)
        return
    name = name.rstrip(".")
    number = number_of(name, place)
    kind, size = record.dtype.kind, record.dtype.itemsize
    values = number + np.arange(record.size).reshape(record.shape)
    if kind == "b":
        record[...] = values % 2
    elif kind == "S":
        record[...] = np.char.mod(b"%d", values).astype(f"S{size}")
    elif kind == "V":
        record[...] = np.array([int(v).to_bytes(16, "little") for v in values.flat], f"V{size}").reshape(record.shape)
    else:
        record[...] = values % 5 if name in LEVELS else values % 32000 if size < 4 else values


def described(kind: np.dtype[Any]) -> dict[str, Any]:
    """The layout of a structure as plain data: see jobs/run_table_file.py."""
    assert kind.names and kind.fields
    columns = []
    for name in kind.names:
        base, shape = kind.fields[name][0].base, list(kind.fields[name][0].shape)
        column = [name, described(base) if base.names else base.str, kind.fields[name][1]]
        columns.append([*column, shape] if shape else column)
    return {"bytes": kind.itemsize, "columns": columns}


def as_python(tag: str, row: dict[str, Any], state: dict[str, Any]) -> str:
    """A module with the layout; ruff makes it pretty."""
    return (
        '"""The layout of the table of runs that JobLens 0.1 wrote: frozen, so that its runs can be taken over.\n\n'
        "TAG is the hash that its file begins with; ROW and STATE are as run_table_file.describe says it. Made by\n"
        'tests/unit/data/write_slots_state.py from the code of 0.1.\n"""\n\n'
        "from __future__ import annotations\n\nfrom typing import Any\n\n"
        f'TAG = bytes.fromhex("{tag}")\nROW: dict[str, Any] = {row!r}\nSTATE: dict[str, Any] = {state!r}\n'
    )


def main(target: str, layout: str) -> None:
    sys.path.insert(0, ".")
    table = importlib.import_module("condor_joblens.jobs.runs")
    with tempfile.TemporaryDirectory() as folder:
        runs = table.Runs(f"{folder}/slots.state", CAPACITY)
        for cgroup_id in range(max(JOBS) + 2):
            runs.add(1 + cgroup_id)
        for place in range(max(JOBS) + 2):
            if place not in JOBS:
                runs.remove(place)
                continue
            fill(runs.rows[place : place + 1], "", place)
            fill(runs.state[place : place + 1], "", place)
            runs.state["used"][place] = True
            runs.state["cgroup_id"][place] = 4000 + place
            runs.state["kernel_slot"][place] = place if runs.rows["level_number"][place] else -1
        Path(target).write_bytes(lzma.compress(Path(f"{folder}/slots.state").read_bytes()))
    Path(layout).write_text(as_python(table._TAG.hex(), described(table.ROW), described(table.STATE)))


if __name__ == "__main__":
    main(*sys.argv[1:])
