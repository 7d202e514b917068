"""What a call has waited in, in words: the leaf of a stack off the CPU."""

from __future__ import annotations

from condor_joblens.model.classes import FILESYSTEMS
from condor_joblens.profiling import calls

_CLASS_SHIFT = 16
"""WAITED_CLASS_SHIFT of joblens_profile.h."""

_CLASSES = tuple(FILESYSTEMS)
_FILE_LOCK = len(_CLASSES)
"""FILE_LOCK of joblens_io.h."""

_REMOTE = frozenset({"Cvmfs", "Eos", "Xrootdfs", "Nfs", "Lustre", "Gpfs", "Beegfs", "Ceph"})
"""Classes of file systems that a server stands behind; of other FUSE nobody knows."""

_THINGS = {"Pipe": "a pipe", "Socket": "a server", "Tty": "a terminal", "Other": ""}
_WORDS = (
    (frozenset({"futex", "futex_wait", "futex_waitv", "flock"}) | calls.SEMAPHORES, "a lock"),
    (calls.CHILDREN | calls.CLONES, "a child"),
    (calls.SLEEPS, "a timer"),
    (calls.POLLS | {"io_getevents", "io_uring_enter"}, "events"),
    (calls.SIGNALS, "a signal"),
    (calls.QUEUES, "a message queue"),
    (calls.ACCEPTS | {"connect"}, "a server"),
)


def waited_in(told: int) -> str:
    """`waits for a lock (futex)`, of struct sample's waited_in; `waits (call 999)` if nothing more is known."""
    number, file_class = told & (1 << _CLASS_SHIFT) - 1, (told >> _CLASS_SHIFT) - 1
    call = calls.name(number)
    subject = _subject(call, file_class)
    return f"waits for {subject} ({call})" if subject else f"waits ({call})"


def _subject(call: str, file_class: int) -> str:
    for named, word in _WORDS:
        if call in named:
            return word
    if file_class == _FILE_LOCK:
        return "a lock"
    if not 0 <= file_class < len(_CLASSES):
        return ""
    name = _CLASSES[file_class]
    if name in _THINGS:
        return _THINGS[name]
    return f"a file server, {name.upper()}" if name in _REMOTE else f"a file system, {name}"
