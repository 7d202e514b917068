"""Who of the job's own has made the call in which a thread waits: the innermost function that is no language's library.

Those are the libraries of C, C++ and Python. So a function of any other library counts, and its file is told with it.
"""

from __future__ import annotations

import re

from condor_joblens.profiles.thread import Frame, Thread

LONGEST = 160
"""Characters of a function that are told: names of templates can fill a page."""

_INSTALLED = re.compile(r"^<|/lib(64)?/python\d|/(site|dist)-packages/")
"""Where functions of Python lie that come with it, or are installed."""

_RUNTIME = re.compile(
    r"(lib(c|m|pthread|rt|dl|util|anl|resolv|nss_\w+|stdc\+\+|c\+\+|c\+\+abi|gcc_s|python\d.*)[.-]|ld-|python\d|\[)"
)
"""How files are called that have what comes with C, C++ and Python; `[vdso]` is the kernel's."""

_OF_RUNTIME = re.compile(r"(std::|__|_start$|pthread_|runtime[./]|syscall\.|internal/)")
"""How functions begin that programs have of them: templates, and all if they are linked statically. Go is always."""

_WRAPPERS = frozenset({"nanosleep", "clock_nanosleep", "usleep", "sleep", "recv", "send", "accept", "wait", "waitpid"})
"""Functions of the C library that are called otherwise than their system calls."""

_LIBRARY = re.compile(r"\.so(\.|$)")
_ARGUMENTS = re.compile(r"<[^<>]*>")
_MOST_NESTED = 20


def of(thread: Thread) -> Frame | None:
    """None if nobody can be named."""
    found = _python(thread) or _native(thread)
    # an address in a program without names would tell nothing
    return found if found is None or found.function or _is_library(found) else None


def said(thread: Thread, frame: Frame) -> str:
    """The caller in words, and what of Python's library it has called: `fit.py:7 load() through queue.py:171 get()`."""
    found = [each for each in thread.frames if each.is_python]
    inner = found[found.index(frame) - 1] if frame in found[1:] else None
    if inner is None or not _INSTALLED.search(inner.file) or _INSTALLED.search(frame.file):
        return words(frame)
    return f"{words(frame)} through {words(inner)}"


def own(thread: Thread) -> Frame | None:
    """The same, but none of what comes with Python, or is installed there."""
    found = of(thread)
    return None if found is None or (found.is_python and _INSTALLED.search(found.file)) else found


def words(frame: Frame) -> str:
    """`fit.py:42 load()`, `Tree::fill(int)`, `TFile::Open(char const*) in libRIO.so.6`, `libRIO.so.6+0x1234`."""
    name = frame.name if len(frame.name) <= LONGEST else frame.name[: LONGEST - 2] + ".."
    return f"{name} in {_file(frame)}" if frame.function and _is_library(frame) else name


def _python(thread: Thread) -> Frame | None:
    """The innermost one of the job's own, else of what is installed."""
    found = [frame for frame in thread.frames if frame.is_python]
    return next((frame for frame in found if not _INSTALLED.search(frame.file)), found[0] if found else None)


def _native(thread: Thread) -> Frame | None:
    """None also where the way there leads through code that no table describes."""
    is_static = not any(_is_of_runtime(frame) for frame in thread.frames)
    for frame in thread.frames:
        if frame.is_guessed or not frame.file:
            return None
        is_wrapper = is_static and frame.function in {thread.call, *_WRAPPERS}
        if not (_is_of_runtime(frame) or is_wrapper or _OF_RUNTIME.match(_bare(frame.function))):
            return frame
    return None


def _is_library(frame: Frame) -> bool:
    return not frame.is_python and bool(_LIBRARY.search(_file(frame)))


def _file(frame: Frame) -> str:
    return frame.file.rpartition("/")[2]


def _is_of_runtime(frame: Frame) -> bool:
    return bool(_RUNTIME.match(_file(frame)))


def _bare(function: str) -> str:
    """`std::condition_variable::wait` of `void std::condition_variable::wait<X<int> >(X<int>)`."""
    for _ in range(_MOST_NESTED):
        shorter = _ARGUMENTS.sub("", function)
        if shorter == function:
            break
        function = shorter
    return function.partition("(")[0].rpartition(" ")[2]
