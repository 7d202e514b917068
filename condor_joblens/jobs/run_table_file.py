"""The file of the table of runs: it describes its own columns, so that another version can take its numbers over.

- The header has 80 bytes: magic, format, byte order, capacity, offsets, and the SHA-256 of header and description.
- The description is JSON: the columns of `rows` and of `state`, with their types and offsets.
- Then come `capacity` records of `rows`, from a page on.
- The last part is `capacity` records of `state`.

The numbers carry no checksum: joblensd writes them in place, and may be killed at any moment. Version 0.1 wrote a hash
of its types alone (32 bytes); its layout is kept in run_table_0_1.py. A new version never changes a file in place.
It fills a new one and renames it, so that a stop in between leaves the old file whole.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import mmap
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.common.files import replacing
from condor_joblens.jobs.run_state import RENAMED

MAGIC = b"JLRUNTAB"
FORMAT = 2
BYTE_ORDER = 0x01020304
_HEADER = struct.Struct("=8sIIQQQQ32s")

FIRST_ROWS_AT = 64
"""Where the rows of 0.1 begin."""

MAX_DESCRIPTION_BYTES = 1 << 20
MAX_CAPACITY = 1 << 20
MAX_RECORD_BYTES = 1 << 20
MAX_FILE_BYTES = 1 << 30
MAX_COLUMNS = 4096
MAX_DEPTH = 4
"""Structures within structures."""

HEAD_BYTES = _HEADER.size + MAX_DESCRIPTION_BYTES

_TYPE = re.compile(r"[|<](?:b1|[iu][1248]|f[48]|S[1-9]\d{0,4}|V[1-9]\d{0,4})")


class Unreadable(Exception):
    """The file is no table of runs that this version understands; the text says why, without the path."""


@dataclass(frozen=True)
class Layout:
    """How a file lies in bytes."""

    row: np.dtype[Any]
    state: np.dtype[Any]
    capacity: int
    rows_at: int
    version: str = ""  # of JobLens, if the file itself does not say more

    @property
    def state_at(self) -> int:
        """Offset of the states."""
        return self.rows_at + self.capacity * self.row.itemsize

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return self.state_at + self.capacity * self.state.itemsize


# -- what stands before the records -------------------------------------------------------------------------------


def describe(kind: np.dtype[Any]) -> dict[str, Any]:
    """The structure `kind` as plain data: its size, and a list [name, type, offset(, shape)] for each column."""
    columns = []
    for name in kind.names or ():
        assert kind.fields is not None
        field, offset = kind.fields[name][:2]
        column = [name, describe(field.base) if field.base.names else field.base.str, offset]
        columns.append([*column, list(field.shape)] if field.shape else column)
    return {"bytes": kind.itemsize, "columns": columns}


def parse_description(found: Any, depth: int = 1) -> np.dtype[Any]:
    """The structure of which `describe` said `found`. Raises Unreadable if it is impossible or beyond all bounds."""
    size, columns = _member(found, "bytes"), _member(found, "columns")
    if not _is_count(size, MAX_RECORD_BYTES) or not isinstance(columns, list) or len(columns) > MAX_COLUMNS:
        raise Unreadable("describes impossible columns")
    names, formats, offsets = [], [], []
    for column in columns:
        if not isinstance(column, list) or len(column) not in (3, 4):
            raise Unreadable("describes impossible columns")
        name, kind, offset = column[:3]
        shape = column[3] if len(column) == 4 else []
        if not isinstance(name, str) or not name.isidentifier() or not isinstance(shape, list) or len(shape) > 2:
            raise Unreadable("describes impossible columns")
        if not all(_is_count(length, MAX_RECORD_BYTES) for length in shape) or not _is_count(offset, size):
            raise Unreadable("describes impossible columns")
        names.append(name)
        formats.append((_parse_type(kind, depth), tuple(shape)))
        offsets.append(offset)
        # Python's numbers have no limit: numpy would reckon with 64 bits
        if offset + formats[-1][0].itemsize * functools.reduce(int.__mul__, shape, 1) > size:
            raise Unreadable("describes impossible columns")
    try:
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
    except (ValueError, TypeError):
        raise Unreadable("describes impossible columns") from None


def _parse_type(kind: Any, depth: int) -> np.dtype[Any]:
    if isinstance(kind, dict) and depth < MAX_DEPTH:
        return parse_description(kind, depth + 1)
    if isinstance(kind, str) and _TYPE.fullmatch(kind):
        return np.dtype(kind)
    raise Unreadable("describes impossible columns")


def _member(found: Any, name: str) -> Any:
    return found.get(name) if isinstance(found, dict) else None


def _is_count(value: Any, greatest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= greatest


def preamble(row: np.dtype[Any], state: np.dtype[Any], capacity: int) -> bytes:
    """All that stands before the records of a new file: header and description, filled up to a page."""
    description = json.dumps({"row": describe(row), "state": describe(state)}, separators=(",", ":")).encode()
    rows_at = -(-(_HEADER.size + len(description)) // mmap.PAGESIZE) * mmap.PAGESIZE
    state_at = rows_at + capacity * row.itemsize
    known = (MAGIC, FORMAT, BYTE_ORDER, capacity, len(description), rows_at, state_at)
    header = _HEADER.pack(*known, _checksum(known, description))
    return (header + description).ljust(rows_at, b"\0")


def _checksum(known: tuple[Any, ...], description: bytes) -> bytes:
    return hashlib.sha256(_HEADER.pack(*known, bytes(32)) + description).digest()


def read_layout(head: bytes, file_bytes: int) -> Layout:
    """The layout of a file of `file_bytes` that begins with `head` (HEAD_BYTES, or all of it). Raises Unreadable."""
    if head[: len(MAGIC)] != MAGIC:
        return _first_layout(head, file_bytes)
    if len(head) < _HEADER.size:
        raise Unreadable("is truncated")
    magic, version, order, capacity, described, rows_at, state_at, checksum = _HEADER.unpack(head[: _HEADER.size])
    if version != FORMAT or order != BYTE_ORDER:
        raise Unreadable("was written in a format that this version of JobLens does not know")
    if described > MAX_DESCRIPTION_BYTES or capacity > MAX_CAPACITY or rows_at < _HEADER.size + described:
        raise Unreadable("is damaged: its header has impossible numbers")
    description = head[_HEADER.size : _HEADER.size + described]
    known = (magic, version, order, capacity, described, rows_at, state_at)
    if checksum != _checksum(known, description):
        raise Unreadable("is damaged: the checksum of its header is wrong")
    layout = _described_layout(description, capacity, rows_at)
    if layout.state_at != state_at:
        raise Unreadable("is damaged: its header has impossible numbers")
    if layout.file_bytes > file_bytes:
        raise Unreadable("is truncated")
    return layout


def _described_layout(description: bytes, capacity: int, rows_at: int) -> Layout:
    try:
        found = json.loads(description)
    except (ValueError, RecursionError):
        raise Unreadable("is damaged: its description is no JSON") from None
    row, state = (parse_description(_member(found, part)) for part in ("row", "state"))
    if not _is_table(row, "level_number", "i") or not _is_table(state, "cgroup_id", "u"):
        raise Unreadable("describes impossible columns")
    if not _is_table(state, "used", "b"):
        raise Unreadable("describes impossible columns")
    return Layout(row, state, capacity, rows_at)


def _is_table(kind: np.dtype[Any], column: str, letter: str) -> bool:
    """Whether the structure has a column of that name with a single value of that kind."""
    return kind.fields is not None and column in kind.fields and kind.fields[column][0].kind == letter


def _first_layout(head: bytes, file_bytes: int) -> Layout:
    from condor_joblens.jobs import run_table_0_1  # for a single start after an upgrade

    if not head.startswith(run_table_0_1.TAG):
        raise Unreadable("is no table of runs")
    row, state = parse_description(run_table_0_1.ROW), parse_description(run_table_0_1.STATE)
    capacity, rest = divmod(file_bytes - FIRST_ROWS_AT, row.itemsize + state.itemsize)
    if rest:
        raise Unreadable("is truncated")
    return Layout(row, state, capacity, FIRST_ROWS_AT, "0.1")


# -- from one layout to another -----------------------------------------------------------------------------------


def copy_columns(old: np.ndarray, new: np.ndarray, renamed: Mapping[str, str] | None = None) -> None:
    """Copies the columns that the records `old` and `new`, of one shape, have both, by their names.

    `renamed` gives the new name of columns that had another one in `old`. A value that does not fit into its new type
    leaves what `new` has there; a text that is too long is cut.
    """
    names = {(renamed or {}).get(name, name): name for name in old.dtype.names or ()}
    for name in new.dtype.names or ():
        if name not in names:
            continue
        source, target = old[names[name]], new[name]
        if source.dtype.kind == "V" and not source.dtype.names and target.dtype.names:
            source = _opened_up(source, target)
        if source.shape != target.shape or bool(source.dtype.names) != bool(target.dtype.names):
            continue
        if target.dtype.names:
            copy_columns(source, target)
        else:
            _copy_values(source, target)


def _opened_up(opaque: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Opaque bytes as what they are here if they have that size: a structure that changes its meaning changes its size
    or its name (test_an_opaque_column_changes_its_size_or_its_name)."""
    if opaque.nbytes != target.size * target.dtype.itemsize:
        return opaque
    opened: np.ndarray = np.ascontiguousarray(opaque).view(target.dtype).reshape(target.shape)
    return opened


def _copy_values(source: np.ndarray, target: np.ndarray) -> None:
    kinds, safe = source.dtype.kind + target.dtype.kind, np.can_cast(source.dtype, target.dtype, "safe")
    if kinds == "bb":
        target[...] = source.view("u1") != 0  # any other bit pattern is no bool to numpy
    elif kinds in ("ii", "uu", "ui", "iu"):
        bounds = np.iinfo(target.dtype)
        fits = (source >= _within(bounds.min, source)) & (source <= _within(bounds.max, source))
        target[...] = np.where(fits, source.astype(target.dtype), target)
    elif kinds == "SS" and not safe:
        for place in np.ndindex(source.shape):
            text = bytes(source[place])[: target.dtype.itemsize]
            target[place] = text if len(bytes(source[place])) <= len(text) else text.decode(errors="ignore").encode()
    elif kinds in ("ff", "SS", "VV") and safe and (kinds != "VV" or source.dtype == target.dtype):
        target[...] = source


def _within(bound: int, source: np.ndarray) -> Any:
    """`bound` as a number of the type of `source`: numpy compares different ones as floating-point."""
    limits = np.iinfo(source.dtype)
    return source.dtype.type(min(max(bound, limits.min), limits.max))


# -- the file -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tables:
    """The two tables of a file: arrays of structures, each of shape (capacity,)."""

    rows: Any  # numpy's types don't tell a structure's columns apart
    state: Any


def open_file(path: str, fresh: Callable[[int], Tables], capacity: int, log: Callable[[str], None]) -> Tables:
    """The tables in the file at `path`, mode 0600; if there is none of this layout, in a new one in its place.

    `fresh` makes as many new records as it is asked for. Runs are taken over from a file of another layout or capacity;
    of one that can't be read a single line is logged. Raises JobLensError if no file can be made.
    """
    sample = fresh(0)
    head = preamble(sample.rows.dtype, sample.state.dtype, capacity)
    layout = Layout(sample.rows.dtype, sample.state.dtype, capacity, len(head))
    old = None
    try:
        with _opened(path) as descriptor:
            size = _checked_size(os.fstat(descriptor))
            begins = os.pread(descriptor, HEAD_BYTES, 0)
            if size == layout.file_bytes and begins.startswith(head):
                os.posix_fallocate(descriptor, 0, size)  # on a full file system a hole would be a SIGBUS later
                return _tables(mmap.mmap(descriptor, size), layout)
            old = _read(descriptor, read_layout(begins, size))
    except FileNotFoundError:
        pass
    except (Unreadable, OSError) as error:
        why = f"can't be read ({error.strerror})" if isinstance(error, OSError) else str(error)
        log(f"{path} {why}: it is replaced, and the totals of the jobs that run now begin anew")
    try:
        return _replace(path, layout, head, fresh, old, log)
    except OSError as error:
        raise JobLensError(f"{path} can't be made: {error.strerror}; make room or set JOBLENS_RUN_DIR") from None


def _tables(memory: mmap.mmap | bytes, layout: Layout) -> Tables:
    rows = np.frombuffer(memory, layout.row, layout.capacity, layout.rows_at)
    return Tables(rows, np.frombuffer(memory, layout.state, layout.capacity, layout.state_at))


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _checked_size(status: os.stat_result) -> int:
    """The size of the file, if joblensd can have written it. Raises Unreadable."""
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("is no plain file")
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise Unreadable("could have been written by others")
    return status.st_size


def _read(descriptor: int, layout: Layout) -> tuple[Tables, Layout]:
    """A copy of the tables: to read holes of a mapped file would need room on the file system."""
    if layout.file_bytes > MAX_FILE_BYTES:
        raise Unreadable("is far too large")
    parts, found = [], 0
    while found < layout.file_bytes:
        parts.append(os.pread(descriptor, layout.file_bytes - found, found))
        found += len(parts[-1])
        if not parts[-1]:
            raise Unreadable("is truncated")
    return _tables(b"".join(parts), layout), layout


def _replace(
    path: str,
    layout: Layout,
    head: bytes,
    fresh: Callable[[int], Tables],
    old: tuple[Tables, Layout] | None,
    log: Callable[[str], None],
) -> Tables:
    """A new file under a temporary name, with the runs of the old one; then it takes the old one's place."""
    with replacing(path, 0o600) as descriptor:
        os.posix_fallocate(descriptor, 0, layout.file_bytes)
        memory = mmap.mmap(descriptor, layout.file_bytes)
        memory[: len(head)] = head
        tables = _tables(memory, layout)
        if old is not None:
            _take_over(path, old[0], tables, fresh, old[1].version, log)
    return tables


def _take_over(
    path: str,
    old: Tables,
    new: Tables,
    fresh: Callable[[int], Tables],
    version: str,
    log: Callable[[str], None],
) -> None:
    places = np.flatnonzero(old.state["used"].view("u1"))
    kept, left = places[: len(new.rows)], places[len(new.rows) :]
    made = fresh(len(kept))
    copy_columns(old.rows[kept], made.rows)
    copy_columns(old.state[kept], made.state, RENAMED)
    targets = _targets(kept, len(new.rows))
    new.rows[targets], new.state[targets] = made.rows, made.state
    log(f"{path}: {len(kept)} runs taken over from {'version ' + version if version else 'another layout'}")
    for place in left.tolist():
        log(
            f"{path}: no room for the run of {_name_of(old.rows[place])}: its totals begin anew; "
            f"JOBLENS_MAX_JOBS = {len(new.rows)}, set it to {len(places)} or more"
        )


def _targets(kept: np.ndarray, capacity: int) -> np.ndarray:
    """The place of each run of `kept` (n,): the one that it had, or a free one if that is beyond the capacity."""
    targets: np.ndarray = kept.copy()
    beyond = kept >= capacity
    free = np.setdiff1d(np.arange(capacity), kept[~beyond])
    targets[beyond] = free[: int(beyond.sum())]
    return targets


def _name_of(row: np.void) -> str:
    """What the log calls a run: its id, else its slot."""
    for column in ("run", "slot"):
        if column in (row.dtype.names or ()) and row.dtype[column].kind == "S" and row[column]:
            return bytes(row[column]).decode("utf-8", "backslashreplace")
    return "an unknown job"
