"""Where a thread was when a signal killed its process: as an artifact has it, and in a few words for an ad.

Names are the job's: they are cut and escaped wherever they are shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.errors import printable
from condor_joblens.common.redact import command_line
from condor_joblens.profiles.profile import Frame, Kind
from condor_joblens.profiles.text import clean

CONTENT_TYPE = "application/json"

MOST_WORDS = 150
"""Characters of printable ASCII in words; an ad's Death has 240 bytes for all."""

MOST_BYTES = 100_000
"""Of an artifact."""

_FITS = ((500, 400), (120, 200), (60, 100), (60, 20))
"""Characters of a name and frames, the innermost, of an artifact: what fits first is taken."""

_TOP = 3
_LONGEST = 40
_LONGEST_TEXT = 60
_RAISING = frozenset({"raise", "gsignal", "abort", "pthread_kill", "tgkill", "kill", "__assert_fail", "__restore_rt"})
_RAISES = ("__pthread_kill", "__GI_", "__assert", "__libc_message", "__fortify", "__chk_fail", "__stack_chk", "__cxa_",
           "__cxxabiv1::", "__gnu_cxx::__verbose_terminate", "std::terminate", "std::__throw_", "std::rethrow_",
           "std::unexpected",
           "_Unwind_", "__gxx_personality_v0", "__clang_call_terminate")  # fmt: skip
_RUNTIMES = ("libc.so", "libc-", "libpthread", "libstdc++", "libc++", "libgcc_s")
_TERMINATES = ("std::terminate", "__cxxabiv1::__terminate", "__cxa_call_terminate", "__gxx_personality_v0",
               "__clang_call_terminate")  # fmt: skip
"""Beneath abort(), what C++ calls if nobody catches an exception; the last three for what noexcept lets not through."""

_LONGEST_NAME = 1000
_PART = re.compile(r"(?: \[clone \.[\w.]{1,40}\]|\.(?:cold|part|constprop|isra|lto_priv)(?:\.\d{1,9})?){1,8}$")
"""What a compiler adds to the name of a part of a function."""


@dataclass(frozen=True)
class Crash:
    """One thread; `frames` has the innermost first."""

    signal: str  # SIGSEGV
    time: float  # epoch seconds
    pid: int
    thread: str = ""  # its name
    frames: tuple[Frame, ...] = ()
    is_whole: bool = True  # the outermost frame has no caller
    is_guessed: bool = False  # a frame was found by a frame pointer, for want of a rule
    is_ours: bool = True  # false: the process is not the owner's alone, or may not be dumped: nothing was looked at
    exception: str = ""  # type of the C++ exception that nobody caught, if std::terminate() has ended the process
    text: str = ""  # what it says; empty if that is not known


def encode(crash: Crash) -> bytes:
    """The artifact, MOST_BYTES at most."""
    for longest, frames in _FITS:
        data = json.dumps(record(crash, longest, frames), indent=1, ensure_ascii=False).encode("utf-8", "replace")
        if len(data) <= MOST_BYTES:
            return data
    raise AssertionError("the last always fits")


def record(crash: Crash, longest: int = 500, frames: int = 400) -> dict[str, Any]:
    """The same in JSON: names of so many characters, and so many of the innermost frames."""
    return {
        "Signal": crash.signal,
        "Time": crash.time,
        "Pid": crash.pid,
        "Thread": clean(crash.thread, longest),
        "Whole": crash.is_whole and len(crash.frames) <= frames,
        "Guessed": crash.is_guessed,
        "NotOurs": not crash.is_ours,
        "Exception": clean(crash.exception, longest),
        "Text": clean(crash.text, longest),
        "Frames": [
            {
                "Function": clean(frame.function, longest),
                "Kind": frame.kind.value,
                "File": clean(frame.file, longest),
                "Line": frame.line,
                "Offset": frame.offset,
                "BuildId": clean(frame.build_id, 64),
            }
            for frame in crash.frames[:frames]
        ],
    }


def decode(data: bytes) -> Crash:
    """What encode has made. Raises ValueError for anything else."""
    try:
        found = json.loads(data)
        frames = tuple(
            Frame(
                str(each["Function"]), Kind(each["Kind"]), str(each["File"]), int(each["Line"]), int(each["Offset"]),
                str(each["BuildId"]),
            )
            for each in found["Frames"]
        )  # fmt: skip
        return Crash(
            str(found["Signal"]), float(found["Time"]), int(found["Pid"]), str(found["Thread"]), frames,
            bool(found["Whole"]), bool(found["Guessed"]), not found["NotOurs"],
            str(found.get("Exception", "")), str(found.get("Text", "")),
        )  # fmt: skip
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"no stack of a crash: {error}") from None


def in_words(crash: Crash) -> str:
    """`inner(int) < outer() < main (reco)`: three functions of the top, as MOST_WORDS has it; empty without a stack.

    What only raises the signal, as abort() and std::terminate() do, is left out. Has Python called the three, its
    innermost function follows. What C++ has thrown and nobody caught ends it, and takes the place of functions.
    """
    frames = own(crash.frames)
    if not any(is_known(frame) for frame in frames):
        return ""
    if not is_by_terminate(crash):
        return printable(_places(frames, _TOP), MOST_WORDS)
    thrown = _thrown(crash)
    words = next((words for top in (3, 2, 1) if len(words := _places(frames, top)) + len(thrown) <= MOST_WORDS), "")
    return printable(words or _places(frames, 1), MOST_WORDS - len(thrown)) + thrown


def is_by_terminate(crash: Crash) -> bool:
    """Whether std::terminate() has raised the signal."""
    raising = crash.frames[: len(crash.frames) - len(own(crash.frames))]
    return any(frame.function.startswith(_TERMINATES) for frame in raising)


def _places(frames: Sequence[Frame], most: int) -> str:
    top = frames[:most]
    words = " < ".join(_short(frame) for frame in top)
    library = next((frame.library for frame in top if frame.kind is Kind.NATIVE and frame.file), "")
    if library and not any(frame.function.startswith(library) for frame in top):
        words += f" ({clean(library, _LONGEST)})"
    python = next((frame for frame in frames[most:] if frame.kind is Kind.PYTHON), None)
    if python is not None and not any(frame.kind is Kind.PYTHON for frame in top):
        words += f", called by {_short(python)}"
    return words


def _thrown(crash: Crash) -> str:
    """What std::terminate() was called for, without what looks like a secret: many may read an ad."""
    if not crash.exception:
        return ", by std::terminate"
    text = f' "{printable(command_line(crash.text.encode()), _LONGEST_TEXT)}"' if crash.text else ""
    return f", uncaught {printable(crash.exception, _LONGEST)}{text}"


def own(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Those from the function on that has raised the signal: without what of the C and C++ libraries does it."""
    at = 0
    while at < len(frames) and _raises(frames[at]):
        at += 1
    is_raised = any(frame.function in _RAISING or frame.function.startswith(_RAISES) for frame in frames[:at])
    return frames[at:] if is_raised and at < len(frames) else frames


def is_known(frame: Frame) -> bool:
    """Whether the frame says anything: a function, or a file."""
    return bool(frame.file) or frame.kind is Kind.PYTHON


def _raises(frame: Frame) -> bool:
    if frame.kind is not Kind.NATIVE:
        return False
    # of a library without its local symbols
    is_nameless = frame.library.startswith(_RUNTIMES) and frame.function.startswith(frame.library)
    return is_nameless or frame.function in _RAISING or frame.function.startswith(_RAISES)


def _short(frame: Frame) -> str:
    name = clean(_PART.sub("", frame.function[:_LONGEST_NAME]), _LONGEST)
    return f"{name} ({clean(frame.library, 24)}:{frame.line})" if frame.kind is Kind.PYTHON and frame.line else name
