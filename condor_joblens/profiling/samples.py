"""What the kernel's samples of one run add up to in a minute: stacks with their counts, and the files that they are in.

The process that reads samples makes a Window of each run and minute. It hands that, with a way to
open the files, to whoever makes names of addresses and keeps the result. Nothing here has a name of a function but what
comes with a sample: those of the kernel and of Python.

Everything is the job's own: paths, names of threads and of functions can be any text, of bounded length.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Protocol

from condor_joblens.profiling.exception_types import CxxException

MOST_FRAMES = 255
"""User frames of one stack, the innermost ones; Stack.is_whole says if that was all."""

MOST_STACKS = 4096
"""Different stacks in a window. Samples of more are in Window.left_out."""

MOST_TEXT = 1000
"""Characters of a path or a function's name; the end of a longer one is kept."""

FIRST_WINDOW_SECONDS, WINDOW_SECONDS = 5.0, 60.0
"""How long the first window of a run is, and how long one is at most: each is twice as long as the one before."""


class Kind(enum.IntEnum):
    """Whose code a frame is."""

    KERNEL = 0
    NATIVE = 1
    PYTHON = 2


@dataclass(frozen=True)
class FileKey:
    """Which file, as the kernel knows it: another one in its place has another key. A build-id can be forged."""

    device: int  # os.makedev(major, minor) of what /proc/PID/maps shows
    inode: int
    size: int  # bytes
    ctime_ns: int


@dataclass(frozen=True)
class MappedFile:
    """A program or library that frames are in."""

    key: FileKey
    path: str  # as the job sees it, which may be in a container; for people to read, not to open
    is_roots: bool = False  # root owns it and alone may write it: what is made of it may be used for other users' jobs


NO_FILE, NO_PLACE, NOT_LOOKED_AT = -1, -2, -3


@dataclass(frozen=True)
class Frame:
    """A place in code: where a thread was, or, of a caller, within the call that it made.

    Native: `file` is an index in Window.files and `offset` is bytes in that file. Code that
    is in no file, as a just-in-time compiler's, has NO_FILE, and `offset` is its address. Files for which the reader
    of samples has no place, as there are too many, are NO_PLACE. Of a process that nobody could look at in time, whose
    mappings are not known, it is NOT_LOOKED_AT.
    Kernel: `offset` is the address, `function` the kernel's own name.
    Python: `function`, `source` and `line`; `line` is 0 if it is not known.
    """

    kind: Kind
    offset: int = 0
    file: int = NO_FILE
    function: str = ""
    source: str = ""
    line: int = 0


@dataclass(frozen=True)
class Stack:
    """One thread's stack: user frames, then what of the kernel they called; `frames` has the outermost first."""

    pid: int  # in joblensd's pid namespace
    tid: int
    thread: str  # its name
    frames: tuple[Frame, ...]
    is_guessed: bool = False  # a frame was found by a frame pointer, for want of a table: it may be wrong
    is_whole: bool = True  # the outermost frame is known to have no caller
    calls: tuple[tuple[Frame, ...], ...] = ()  # of Python, each a call of the interpreter; all innermost first
    has_all_calls: bool = True  # of Python, the outermost callers too


@dataclass
class Window:
    """What was sampled of one run from `began` to `until`: 0 or more stacks. See WINDOW_SECONDS.

    `samples` = those in `stacks` + `left_out` + `not_ours`; `lost` are beyond them. A stack's time on the CPU is its
    count / `hz` seconds: `seconds_on_cpu`.

    If it `is_off_cpu`, all of these are nanoseconds instead, that `waits` calls have waited. Those that no stack stands
    for yet are `lost`.
    """

    run: int  # run_number of the run's row
    began: float  # Unix time
    until: float
    hz: int  # samples a second of each CPU
    samples: int = 0
    lost: int = 0  # for which the kernel's ring had no room, or which were lost with a reader that has ended
    guessed: int = 0  # of `samples`: stacks with is_guessed
    broken: int = 0  # of `samples`: stacks without is_whole
    not_ours: int = 0  # of tasks that are not the owner's alone, or may not be dumped: nothing is looked at
    left_out: int = 0  # beyond MOST_STACKS
    is_off_cpu: bool = False
    unseen: tuple[tuple[float, float], ...] = ()  # before it, from and until when nobody looked (Unix time)
    limits: str = ""  # what stacks lack on this node's kernel (kernel_limits.of_stacks)
    waits: int = 0
    taken: int = 0  # of the waits: those with a stack
    files: list[MappedFile] = field(default_factory=list)
    stacks: dict[Stack, int] = field(default_factory=dict)  # -> how many samples
    interpreters: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Files whose code from one offset to another runs functions of Python, and has no name."""

    def seconds_on_cpu(self, stack: Stack) -> float:
        """How long it ran, as far as samples tell."""
        return self.stacks[stack] / self.hz


@dataclass(frozen=True)
class Killed:
    """What is known besides the stack of a thread whose process a signal killed."""

    signal: int
    time: float  # Unix time
    is_ours: bool  # false: the process is not the owner's alone, or may not be dumped: there is no stack
    exception: CxxException | None = None  # that was being handled, if its frames are those of std::terminate()


class OpenFiles(Protocol):
    """The files of a window, while whoever has read the samples still has them open."""

    def descriptor(self, file: MappedFile) -> int | None:
        """For reading, and this side's to keep: don't close it. None if the file could not be had."""

    def symbols(self, file: MappedFile) -> int | None:
        """The same of another file that has its symbols (debug_files.py); None if there is none."""


class Finish(Protocol):
    """What becomes of a window: called in the reader of samples, a process without any right, when the window closes.

    What it returns are bytes that joblensd keeps and never takes apart. It may take its time: samples wait in the
    kernel's ring meanwhile, for some seconds.
    """

    def __call__(self, window: Window, files: OpenFiles) -> bytes:
        """The window with names, as it is kept."""

    def crash(self, window: Window, files: OpenFiles, killed: Killed) -> tuple[str, bytes]:
        """Of the one stack in a window, where a signal killed its process: in a few words, and as it is kept."""
