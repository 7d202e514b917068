"""Exceptions that nothing catches: their tracebacks go into the daemon's log, which is where an admin looks."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from condor_joblens.common.log import LONGEST, Log

FIRST, LAST = 20, 40
"""Lines of a traceback that are logged: the first and the last ones. Recursion makes thousands."""


def log_uncaught(name: str, log: Log) -> None:
    """From here on what nothing catches in this process goes to `log`, with its traceback; `name` is the daemon's."""

    def in_main_thread(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log_exception(log.error, f"{name} ends: nothing caught this exception", error, trace)

    def in_thread(args: Any) -> None:
        if args.exc_type is not SystemExit:
            thread = args.thread.name if args.thread else "that has ended"
            log_exception(log.error, f"{name}: the thread {thread} ends: nothing caught this exception", *args[1:3])

    def unraisable(args: Any) -> None:
        what = args.err_msg or "Exception ignored in"
        log_exception(log.error, f"{name}: {what} {_name_of(args.object)}", args.exc_value, args.exc_traceback)

    sys.excepthook = in_main_thread
    threading.excepthook = in_thread
    sys.unraisablehook = unraisable


def log_exception(
    log: Callable[[str], object], head: str, error: BaseException | None, trace: TracebackType | None = None
) -> None:
    """Hands `head` and the traceback of `error` to `log`, one message a line. Never raises.

    `trace` is error.__traceback__ unless given. An exception's own text may come from strangers. So each line of it is
    indented, which makes none look like a message of ours, and the log escapes it.
    """
    log(f"{head}:")
    try:
        for line in _lines(error, trace):
            log(f"  {line}")
    except Exception as failed:  # e.g. no memory
        log(f"  the traceback can't be shown: {type(failed).__name__}")


def _lines(error: BaseException | None, trace: TracebackType | None) -> Iterator[str]:
    if error is None:
        yield "an exception without a value"
        return
    formatted = traceback.format_exception(type(error), error, trace or error.__traceback__)
    # the message of an exception can be as long as a job's file: no line is escaped before it is cut
    lines = [line[:LONGEST] for line in "".join(formatted).rstrip("\n").split("\n")]
    left_out = len(lines) - FIRST - LAST
    if left_out <= 0:
        yield from lines
        return
    yield from lines[:FIRST]
    yield f"... {left_out} lines left out ..."
    yield from lines[-LAST:]


def _name_of(thing: object) -> str:
    """What is known of an object without asking itself: its repr is code that may fail."""
    return str(getattr(thing, "__qualname__", None) or type(thing).__qualname__)
