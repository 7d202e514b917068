"""What every sensor is: programs in the kernel that count something, and how a tracer starts, reads and ends them.

A sensor is a folder of C (bpf_programs/NAME) and a file of Python (tracer/sensors/NAME.py), named in the table of
tracer/sensors/__init__.py. `basic` is always in the kernel; all others only while a job needs them (on_demand.py).
"""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.failures import Failures
from condor_joblens.model.levels import Level
from condor_joblens.tracer import loader
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.loader import Loaded, Part
from condor_joblens.tracer.makers import Maker, OwnMaker, Wanted


class Sensor(ABC):
    """Programs, their maps, and what is known of them while they are in the kernel.

    Life: `load` or `adopt`; `attach` (what is adopted is attached already); start, stop and counters for slots;
    `detach`, and `attach` again; `unload`. A slot is an index below the tracer's `max_slots`.
    """

    name: ClassVar[str]
    """Of its folder of programs, of its pins, and in messages."""
    level: ClassVar[Level]
    """The lowest level at which a job needs it."""
    parts: ClassVar[tuple[Part, ...]]
    """In the order in which they are loaded and attached."""
    has_own_pins: ClassVar[bool] = False
    """It knows its pins by the sizes of its maps itself: with others nothing else is given up."""

    def __init__(self, max_jobs: int) -> None:
        """For at most `max_jobs` slots at a time; 0 where it is never to be used."""
        self.max_jobs = max_jobs
        self.loaded: Loaded | None = None
        self.is_attached = False
        self.missing: dict[str, str] = {}  # parts that the kernel refused, and why
        self.maker: Maker = OwnMaker()
        """Of its programs, and of maps that come later."""
        self._lost_before = 0  # by programs that are unloaded

    # -- what a sensor says of itself -----------------------------------------------------------------------

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Entries of its maps, by their names in the kernel; maps that are not named keep the size that C gives."""

    def constants(self) -> bytes:
        """What .rodata of its objects begins with; empty: as it was compiled."""
        return b""

    @abstractmethod
    def opened(self) -> None:
        """Its maps are there (`loaded`): makes views of them. What an earlier agent left in them stands if adopted."""

    @abstractmethod
    def closed(self) -> None:
        """Its maps are about to go: forgets the views of them. No slot is counted any more."""

    def wanted(self) -> Wanted:
        """What another process must know to load the same."""
        return Wanted(self.name, self.max_jobs)

    def attaching(self) -> None:  # noqa: B027 - most have nothing to do
        """Its programs are about to be attached, for the first time or again: no slot is counted yet."""

    # -- slots ----------------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, slot: int) -> bool:
        """Counts the slot, from nothing on; false if `max_jobs` slots are counted already."""

    @abstractmethod
    def stop(self, slot: int) -> np.ndarray | None:
        """Counts the slot no longer; what was counted to the last moment, shape (1,). None if it was not counted."""

    @abstractmethod
    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of `slots` (n,) are counted, shape (n,) of bool, and what was counted for those, one element each."""

    def failures(self, slot: int, tgid: int) -> Failures | None:
        """What has failed lately for a process of the slot that has ended, once; None if nothing is known."""
        return None

    @abstractmethod
    def in_use(self) -> bool:
        """Whether any slot is counted."""

    def lost(self) -> int:
        """Events that could not be counted since this sensor was made, on the whole node."""
        return self._lost_before + misses(self.programs().values())

    def refresh(self) -> None:  # noqa: B027 - most have nothing to do
        """Once a round, while it is attached."""

    # -- in the kernel and out of it --------------------------------------------------------------------------

    def load(self, shared: Mapping[str, int], is_wanted: Callable[[], bool] = lambda: True) -> Loaded:
        """Has the kernel verify its programs, which takes a while: `take` what this returns. Any thread may call it.

        `shared` are maps of other sensors, by name. Raises JobLensError if a part that all others need is refused,
        or `is_wanted` has become false, which is looked at between the parts.
        """
        return self.maker.load(self.wanted(), self.parts, self._given(shared), is_wanted)

    def take(self, loaded: Loaded) -> None:
        """From now on it is `loaded`: what `load` returned."""
        self.loaded, self.missing = loaded, loaded.missing
        self.opened()

    def adopt(self, folder: Path, shared: Mapping[str, int]) -> bool:
        """Takes over what an earlier agent left pinned and attached in `folder`; false if there is nothing whole."""
        loaded = loader.adopt(self.parts, folder, self._given(shared))
        if loaded is None:
            return False
        self.is_attached = True
        self.take(loaded)
        return True

    def attach(self, folder: Path | None) -> None:
        """Its programs run from now on. They outlive this process if they can be pinned in `folder`.

        Raises JobLensError if the kernel refuses: it is then loaded still, and not attached.
        """
        assert self.loaded is not None
        self.attaching()
        self.loaded.attach(folder)
        self.is_attached = True

    def detach(self) -> None:
        """Its programs run no longer, and no slot is counted; they stay loaded, so that attaching takes no time."""
        assert self.loaded is not None
        self.loaded.detach()
        self.is_attached = False

    def unload(self) -> None:
        """Nothing of it stays in the kernel."""
        if self.loaded is None:
            return
        self._lost_before = self.lost()
        self.closed()
        self.loaded.unload()
        self.loaded, self.is_attached = None, False

    def programs(self) -> dict[str, int]:
        """Descriptors of the programs that are loaded, by name."""
        return {} if self.loaded is None else self.loaded.programs

    @property
    def maps(self) -> dict[str, int]:
        """Descriptors of the maps, by name, while it is loaded."""
        assert self.loaded is not None
        return self.loaded.maps

    def view(self, name: str, dtype: np.dtype[Any], count: int) -> np.ndarray:
        """The memory of an array map that can be mapped: `count` elements that the kernel changes as they are read."""
        size = -(-dtype.itemsize * count // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(self.maps[name], size)
        view: np.ndarray = np.frombuffer(memory, dtype, count)
        return view

    def keys(self, name: str, size: int) -> list[bytes]:
        """The keys (of `size` bytes) that a map has."""
        found: list[bytes] = []
        last, key = ffi.NULL, ffi.new("char[]", size)
        while lib.bpf_map_get_next_key(self.maps[name], last, key) == 0:
            found.append(bytes(ffi.buffer(key)))
            last, key = key, ffi.new("char[]", size)
        return found

    def _iterate(self, name: str) -> None:
        """Has one of its iterators walk. Raises JobLensError if the kernel fails at it."""
        assert self.loaded is not None
        result = lib.run_iterator(self.loaded.iterators[name])
        if result < 0:
            raise JobLensError(f"the kernel's iterator {name} fails: {os.strerror(-result)}")

    def _given(self, shared: Mapping[str, int]) -> loader.Given:
        return loader.Given(self.sizes(), self.constants(), shared)


def misses(programs: Iterable[int]) -> int:
    """How often these programs (descriptors) could not run because they ran already on that CPU."""
    asked = array("i", programs)
    return int(lib.recursion_misses(ffi.from_buffer("int[]", asked), len(asked)))
