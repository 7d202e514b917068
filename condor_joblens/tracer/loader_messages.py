"""What joblensd and the process that loads programs for it (loader_process.py) say to each other, with descriptors.

joblensd has less rights than that process: what it asks for is bounded, and none of it is code.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from condor_joblens.common.errors import JobLensError
from condor_joblens.tracer.loader import Loaded
from condor_joblens.tracer.makers import CALL_WAITS, MAPPINGS, ROWS, Wanted

SINGLE = b"single"
"""The first packet of a connection on which arrays and clocks are asked for. Else it asks to load a sensor."""

ARRAY, CLOCK = 1, 2
SINGLE_OF = struct.Struct("<BII")  # ARRAY, its kind, entries; or CLOCK, the CPU, how often a second
MADE_OF = struct.Struct("<i")  # 0, and its descriptor comes with it; or -errno

MOST_REQUEST_BYTES = 8192
MOST_ANSWER_BYTES = 65536
MOST_DESCRIPTORS = 250  # SCM_MAX_FD is 253
_MOST_SAID = 2000  # characters about one part

MOST_ENTRIES = {ROWS: (16 << 20) + 1, MAPPINGS: 1 << 16, CALL_WAITS: 1}
"""Of an array: as many rows as a file can have that is read (profiling/elf.py), and the one before them."""

MOST_HZ = 1000
MOST_SLOTS = 1 << 20
MOST_JOB_BYTES = 16 << 20


class Asked(NamedTuple):
    """Which sensor is to be loaded, for how many slots of the node."""

    slots: int
    wanted: Wanted


def request(asked: Asked, shared: Mapping[str, int]) -> tuple[bytes, list[int]]:
    """The packet that asks for it, with the maps of basic that it shares."""
    said = {"slots": asked.slots, **asked.wanted._asdict(), "shared": list(shared)}
    return json.dumps(said).encode(), list(shared.values())


def asked_of(packet: bytes, given: list[int]) -> tuple[Asked, dict[str, int]]:
    """What such a packet says. Raises ValueError for any other."""
    said = json.loads(packet)
    if not isinstance(said, dict) or set(said) != {"slots", *Wanted._fields, "shared"}:
        raise ValueError("a request that joblensd does not make")
    names = _names(said.pop("shared"))
    asked = Asked(said.pop("slots"), Wanted(**said))
    sizes = (asked.slots, MOST_SLOTS), (asked.wanted.jobs, MOST_SLOTS), (asked.wanted.job_bytes, MOST_JOB_BYTES)
    if not all(type(size) is int and 0 <= size <= most for size, most in sizes):
        raise ValueError("sizes that no node has")
    if not isinstance(asked.wanted.sensor, str):
        raise ValueError("no name of a sensor")
    if len(names) != len(given):
        raise ValueError("a map without a name")
    return asked, dict(zip(names, given))


def answer(loaded: Loaded, links: Mapping[str, int]) -> tuple[bytes, list[int]]:
    """The packet that hands over what is loaded, and links of those programs that are attached already."""
    kinds = {"maps": loaded.maps, "programs": loaded.programs, "iterators": loaded.iterators, "links": links}
    said: dict[str, Any] = {kind: list(found) for kind, found in kinds.items()}
    said["missing"] = {part: why[:_MOST_SAID] for part, why in loaded.missing.items()}
    return json.dumps(said).encode(), [descriptor for found in kinds.values() for descriptor in found.values()]


def refusal(why: str) -> bytes:
    """The packet that says that nothing could be loaded."""
    return json.dumps({"refused": why[:_MOST_SAID]}).encode()


def loaded_of(packet: bytes, given: list[int]) -> Loaded:
    """What such an answer hands over. Raises JobLensError if it refuses, ValueError if it is neither."""
    said = json.loads(packet)
    if not isinstance(said, dict):
        raise ValueError("no answer")
    if "refused" in said:
        raise JobLensError(str(said["refused"]))
    kinds = [_names(said.get(kind)) for kind in ("maps", "programs", "iterators", "links")]
    missing = said.get("missing")
    if sum(map(len, kinds)) != len(given) or not isinstance(missing, dict):
        raise ValueError("a descriptor without a name")
    loaded, rest = Loaded(), iter(given)
    maps, programs, iterators, links = (dict(zip(names, rest)) for names in kinds)
    loaded.take_loaded(maps, programs, iterators)
    loaded.take_attached(links)
    loaded.missing = {str(part): str(why) for part, why in missing.items()}
    return loaded


def _names(said: Any) -> list[str]:
    if not isinstance(said, list) or not all(isinstance(name, str) for name in said) or len(set(said)) != len(said):
        raise ValueError("no list of names")
    return said
