"""A thread of a job as it was seen (profiling/look.py), and the functions in its stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INTERPRETER_LOCK = "the lock of Python's interpreter"
"""The object of a wait of a thread of Python that could go on with what it has got. It looks 200 times a second."""


@dataclass(frozen=True)
class Frame:
    """A function in a stack; `function` is empty if its file does not say it, and `file` in the kernel.

    Of Python, the file is the source, and `line` 0 if it is not known. `is_guessed`: its caller may be another one.
    """

    function: str
    file: str = ""
    offset: int = 0
    is_guessed: bool = False
    line: int = 0
    is_python: bool = False
    build_id: str = ""  # of the file, in hexadecimal

    @property
    def source(self) -> str:
        """Of a function whose line is known, `fit.py:42`."""
        return self.file.rpartition("/")[2] + (f":{self.line}" if self.line else "")

    @property
    def name(self) -> str:
        """`Tree::Fill(int)`, or `libx.so+0x1234`; of Python `fit.py:42 load()`."""
        if self.is_python:
            return f"{self.source} {self.function}" + ("" if self.function.endswith(">") else "()")
        return self.function or f"{self.file.rpartition('/')[2] or '?'}+{self.offset:#x}"

    def record(self) -> dict[str, Any]:
        """The frame in JSON."""
        return {
            "Function": self.function,
            "File": self.file,
            "Offset": self.offset,
            "Line": self.line,
            "Python": self.is_python,
            "Guessed": self.is_guessed,
            "BuildId": self.build_id,
        }


@dataclass
class Thread:
    """A thread of the job; texts are fit to print."""

    tid: int
    pid: int
    parent: int
    name: str
    state: str
    waited: float
    call: str
    kernel: tuple[Frame, ...]
    cause: str = "unknown"
    object: str = ""
    holder: str = ""
    holder_pid: int = 0  # of the job; 0: unknown, or none of it
    holder_tid: int = 0
    holder_job: str = ""  # another job of this node
    descriptor: int = -1
    target: str = ""  # path of a file, FIFO or terminal; else as the descriptor's link says: pipe:[12]
    filesystem: str = ""
    mount: str = ""  # where that is mounted
    protocol: str = ""  # tcp, udp or unix
    peer: str = ""  # address and port of the other end
    is_silent: bool = False  # the file server or the other end has sent nothing since the wait began
    frames: tuple[Frame, ...] = ()
    is_whole: bool = False
    refused: str = ""  # why its stack may not be read
    alike: int = 0  # other threads that wait for the same in the same call, and are not told of

    def wait(self) -> dict[str, Any]:
        """What it waits for, in JSON."""
        return {
            "Call": self.call,
            "WaitedSeconds": self.waited,
            "Object": self.object,
            "Descriptor": self.descriptor if self.descriptor >= 0 else None,
            "Target": self.target,
            "FileSystem": self.filesystem,
            "Mount": self.mount,
            "Protocol": self.protocol,
            "Peer": self.peer,
            "SilentSeconds": self.waited if self.is_silent else None,
            "Holder": self.holder,
            "HolderPid": self.holder_pid,
            "HolderTid": self.holder_tid,
            "HolderJob": self.holder_job,
        }

    def record(self) -> dict[str, Any]:
        """The thread in JSON."""
        return {
            "Tid": self.tid,
            "Pid": self.pid,
            "ParentPid": self.parent,
            "Name": self.name,
            "State": self.state,
            "Cause": self.cause,
            **self.wait(),
            "Kernel": [frame.function for frame in self.kernel],
            "Stack": [frame.record() for frame in self.frames],
            "Whole": self.is_whole,
            "Refused": self.refused,
            "Alike": self.alike,
        }
