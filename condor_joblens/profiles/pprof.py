"""Profiles as pprof has them: a gzipped message of https://github.com/google/pprof/blob/main/proto/profile.proto.

So `go tool pprof` and whatever else reads such files reads an artifact as it is. What pprof has no field for is in its
comments, as `joblens.lost=12`. An address is an offset in its file, since processes of a job have a file at several.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

from condor_joblens.profiles import protobuf as wire
from condor_joblens.profiles import unseen
from condor_joblens.profiles.profile import MOST_FRAMES, Frame, Kind, Profile, Stack, View, without_rarest
from condor_joblens.profiles.text import clean

CONTENT_TYPE = "application/vnd.google.protobuf+pprof"
VERSION = 1
"""Of what the comments and labels say."""

MOST_BYTES = 64 << 20
"""Of a profile that is unpacked."""

MOST_SAMPLES = 200_000
_MOST_LIMITS = 200  # characters

_KERNEL = "[kernel.kallsyms]"  # no path: files of a job begin with / or are [vdso] and the like

# fields of the messages, by their numbers in profile.proto
_SAMPLE_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING = 1, 2, 3, 4, 5, 6
_TIME, _DURATION, _PERIOD_TYPE, _PERIOD, _COMMENT = 9, 10, 11, 12, 13


class NoProfile(ValueError):
    """These bytes are no profile of ours."""


# -- writing ----------------------------------------------------------------------------------------------------------


class _Table:
    """Messages that others name by a number, from 1 on."""

    def __init__(self, field: int, encode: Callable[[int, Any], bytes]) -> None:
        self._field, self._encode = field, encode
        self._numbers: dict[Any, int] = {}
        self.parts: list[bytes] = []

    def number(self, key: Any) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._numbers) + 1
            self.parts.append(wire.data(self._field, self._encode(found, key)))
        return found


class _Encoder:
    def __init__(self) -> None:
        self._strings: dict[str, int] = {"": 0}
        self.mappings = _Table(_MAPPING, self._mapping)
        self.functions = _Table(_FUNCTION, self._function)
        self.locations = _Table(_LOCATION, self._location)

    def string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def strings(self) -> bytes:
        return b"".join(wire.data(_STRING, text.encode("utf-8", "replace")) for text in self._strings)

    def value_type(self, kind: str, unit: str) -> bytes:
        return wire.number(1, self.string(kind)) + wire.number(2, self.string(unit))

    def _mapping(self, number: int, key: tuple[str, str]) -> bytes:
        file, build_id = key
        # 1: id, 3: limit, 5: name, 6: build id, 7: has functions
        return b"".join(
            (wire.number(1, number), wire.number(3, (1 << 63) - 1), wire.number(5, self.string(file)),
             wire.number(6, self.string(build_id)), wire.number(7, 1))
        )  # fmt: skip

    def _function(self, number: int, key: tuple[str, str]) -> bytes:
        name, file = (self.string(each) for each in key)
        return wire.number(1, number) + wire.number(2, name) + wire.number(3, name) + wire.number(4, file)

    def _location(self, number: int, frame: Frame) -> bytes:
        source = frame.file if frame.kind is Kind.PYTHON else ""
        line = wire.number(1, self.functions.number((frame.function, source))) + wire.number(2, frame.line)
        file = _KERNEL if frame.kind is Kind.KERNEL else "" if frame.kind is Kind.PYTHON else frame.file
        mapping = self.mappings.number((file, frame.build_id)) if file else 0
        return wire.number(1, number) + wire.number(2, mapping) + wire.number(3, frame.offset) + wire.data(4, line)

    def sample(self, stack: Stack, values: tuple[int, ...]) -> bytes:
        labels = [("thread", stack.thread), ("process", stack.process)]
        encoded = [wire.number(1, self.string(name)) + wire.number(2, self.string(text)) for name, text in labels]
        counts = [("pid", stack.pid), ("guessed", int(stack.is_guessed))]
        encoded += [wire.number(1, self.string(name)) + wire.number(3, value) for name, value in counts if value]
        locations = [self.locations.number(frame) for frame in reversed(stack.frames)]
        return b"".join(
            (
                wire.numbers(1, locations),
                wire.numbers(2, values),
                *(wire.data(3, each) for each in encoded),
            )
        )


def encode(profile: Profile) -> bytes:
    """The profile, gzipped."""
    encoder = _Encoder()
    period = round(1e9 / profile.hz)
    if profile.view is View.ON_CPU:
        types = [("samples", "count"), ("cpu", "nanoseconds")]
        samples = [encoder.sample(stack, (n, n * period)) for stack, n in profile.stacks.items()]
    else:
        types = [(profile.view.name.lower(), "nanoseconds")]
        samples = [encoder.sample(stack, (n,)) for stack, n in profile.stacks.items()]
    parts = [wire.data(_SAMPLE_TYPE, encoder.value_type(*each)) for each in types]
    parts += [wire.data(_SAMPLE, each) for each in samples]
    parts += [*encoder.mappings.parts, *encoder.locations.parts, *encoder.functions.parts]
    parts += [
        wire.number(_TIME, round(profile.begun * 1e9)),
        wire.number(_DURATION, round((profile.ended - profile.begun) * 1e9)),
        wire.data(_PERIOD_TYPE, encoder.value_type("cpu", "nanoseconds")),
        wire.number(_PERIOD, period),
        wire.numbers(_COMMENT, [encoder.string(each) for each in _comments(profile)]),
    ]
    return gzip.compress(b"".join([*parts, encoder.strings()]), 6, mtime=0)


def encode_within(profile: Profile, most_bytes: int) -> bytes:
    """The profile, gzipped, without its rarest stacks if it would be larger."""
    packed = encode(profile)
    while len(packed) > most_bytes and profile.stacks:
        profile = without_rarest(profile, len(profile.stacks) // 2)
        packed = encode(profile)
    return packed


def _comments(profile: Profile) -> list[str]:
    facts = {
        "version": VERSION, "job": profile.job, "node": profile.node, "hz": f"{profile.hz:g}",
        "samples": profile.samples, "lost": profile.lost, "guessed": profile.guessed, "broken": profile.broken,
        "not_ours": profile.not_ours,
    }  # fmt: skip
    if profile.view is not View.ON_CPU:
        facts.update({"view": profile.view.name, "waits": profile.waits, "taken": profile.taken})
    if profile.unseen:
        facts["unseen"] = unseen.encode(profile.unseen)
    if profile.limits:
        facts["limits"] = profile.limits
    return [f"joblens.{name}={value}" for name, value in facts.items()]


# -- reading ----------------------------------------------------------------------------------------------------------


def decode(packed: bytes, most_bytes: int = MOST_BYTES) -> Profile:
    """The profile that `encode` has written. Raises NoProfile; the bytes may be anybody's.

    `most_bytes`: of what it is unpacked.
    """
    try:
        return _Decoder(_unpacked(packed, most_bytes)).profile()
    except (wire.WireError, zlib.error, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise NoProfile(f"no profile: {error}") from None


def _unpacked(packed: bytes, most_bytes: int) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    message = reader.decompress(packed, most_bytes)
    if reader.unconsumed_tail or not reader.eof:
        raise NoProfile("a profile that is cut off, or too large")
    return message


class _Decoder:
    def __init__(self, message: bytes) -> None:
        self._strings: list[str] = []
        self._samples: list[bytes] = []
        self._messages: dict[int, dict[int, bytes]] = {_MAPPING: {}, _LOCATION: {}, _FUNCTION: {}}
        self._numbers: dict[int, int] = {}
        self._comments: list[int] = []
        self._frames: dict[int, Frame] = {}
        for field, value in wire.fields(message):
            self._take(field, value)
        if len(self._samples) > MOST_SAMPLES:
            raise NoProfile("too many samples")

    def _take(self, field: int, value: wire.Value) -> None:
        if field == _STRING and isinstance(value, bytes):
            self._strings.append(value.decode("utf-8", "replace"))
        elif field == _SAMPLE and isinstance(value, bytes):
            self._samples.append(value)
        elif field in self._messages and isinstance(value, bytes):
            number = dict(wire.fields(value)).get(1, 0)
            if isinstance(number, int):
                self._messages[field][number] = value
        elif field == _COMMENT:
            self._comments += wire.unpacked(value)
        elif isinstance(value, int):
            self._numbers[field] = value

    def profile(self) -> Profile:
        said = [self._strings[number] for number in self._comments]
        facts = dict(each[8:].partition("=")[::2] for each in said if each.startswith("joblens."))
        if facts.get("version") != str(VERSION):
            raise NoProfile("a profile of another version: install the same version of all parts")
        begun = self._numbers.get(_TIME, 0) / 1e9
        profile = Profile(
            begun=begun,
            ended=begun + self._numbers.get(_DURATION, 0) / 1e9,
            hz=1e9 / max(1, self._numbers.get(_PERIOD, 1)),
            job=facts.get("job", ""),
            node=facts.get("node", ""),
            lost=_count(facts.get("lost", "")),
            broken=_count(facts.get("broken", "")),
            not_ours=_count(facts.get("not_ours", "")),
            view=View[facts.get("view", View.ON_CPU.name)],
            waits=_count(facts.get("waits", "")),
            taken=_count(facts.get("taken", "")),
            unseen=unseen.decode(facts.get("unseen", "")),
            limits=clean(facts.get("limits", ""), _MOST_LIMITS),
        )
        profile.hz = max(0.001, round(profile.hz, 3))
        for sample in self._samples:
            profile.add(*self._sample(sample))
        return profile

    def _sample(self, message: bytes) -> tuple[Stack, int]:
        locations: list[int] = []
        values: list[int] = []
        labels: dict[str, Any] = {}
        for field, value in wire.fields(message):
            if field == 1:
                locations += wire.unpacked(value)
            elif field == 2:
                values += wire.unpacked(value)
            elif field == 3 and isinstance(value, bytes):
                label = dict(wire.fields(value))
                labels[self._string(label.get(1))] = label.get(3, self._string(label.get(2)))
        if len(locations) > MOST_FRAMES or not values or values[0] < 0:
            raise NoProfile("an impossible sample")
        stack = Stack(
            frames=tuple(self._frame(number) for number in reversed(locations)),
            pid=_number(labels.get("pid")),
            process=str(labels.get("process", "")),
            thread=str(labels.get("thread", "")),
            is_guessed=bool(labels.get("guessed")),
        )
        return stack, values[0]

    def _frame(self, number: int) -> Frame:
        found = self._frames.get(number)
        if found is None:
            found = self._frames[number] = self._read_frame(self._messages[_LOCATION][number])
        return found

    def _read_frame(self, message: bytes) -> Frame:
        location = dict(wire.fields(message))
        line = dict(wire.fields(_bytes(location.get(4))))
        function = dict(wire.fields(self._messages[_FUNCTION][_number(line.get(1))]))
        name, source = self._string(function.get(2)), self._string(function.get(4))
        mapping_number = _number(location.get(2))
        if not mapping_number:
            kind = Kind.PYTHON if source else Kind.NATIVE
            return Frame(name, kind, source, _number(line.get(2)), _number(location.get(3)))
        mapping = dict(wire.fields(self._messages[_MAPPING][mapping_number]))
        file, build_id = self._string(mapping.get(5)), self._string(mapping.get(6))
        if file == _KERNEL:
            return Frame(name, Kind.KERNEL)
        return Frame(name, Kind.NATIVE, file, _number(line.get(2)), _number(location.get(3)), build_id)

    def _string(self, number: object) -> str:
        return self._strings[_number(number)]


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 20 else 0
