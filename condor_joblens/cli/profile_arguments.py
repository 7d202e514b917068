"""The arguments of the commands flame and hot, apart from what they need of libraries: all commands load this."""

from __future__ import annotations

import argparse
import datetime
import time

_WHICH = "12.0, a GlobalJobId, a run, the name of a slot (slot1_3), or 12: all jobs of that cluster on this node"


def add_flame(command: argparse.ArgumentParser) -> None:
    """Those of `joblens flame`."""
    command.add_argument("ids", metavar="ID", nargs="+", help=_WHICH)
    command.add_argument("-o", dest="output", metavar="FILE", help="write it there; -: to standard output")
    command.add_argument("--format", choices=["svg", "folded", "pprof", "speedscope", "json"], help="svg, unless said")
    command.add_argument("--compare", metavar="ID", help="colour by what differs from that job")
    command.add_argument("--process", action="store_true", help="each process apart")
    command.add_argument("--thread", action="store_true", help="threads apart, by their names")
    command.add_argument("--by", choices=["function", "library"], default="function", help="what a box is")
    add_lines(command, "functions by line")
    _add_view(command)
    add_span(command)


def add_hot(command: argparse.ArgumentParser) -> None:
    """Those of `joblens hot`."""
    command.add_argument("id", metavar="ID", help=_WHICH)
    command.add_argument(
        "--by", choices=["function", "line", "file"], default="function", help="what a line is (function)"
    )
    add_lines(command, "by line")
    command.add_argument("--total", action="store_true", help="first what took most with all that it called")
    command.add_argument("--follow", action="store_true", help="each part of the profile as it comes, until Ctrl-C")
    command.add_argument("-n", dest="lines", type=_lines, default=20, metavar="N", help="so many lines (20)")
    view = _add_view(command)
    view.add_argument("--waits", action="store_true", help="how many calls waited how long, by their class")
    add_span(command)


def add_lines(command: argparse.ArgumentParser, what: str) -> None:
    """--lines, as the commands about stacks have it."""
    command.add_argument(
        "--lines", dest="has_lines", action="store_true",
        help=f"{what}, with those of C and C++ that programs' debug information has (needs addr2line)",
    )  # fmt: skip


def _add_view(command: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    view = command.add_mutually_exclusive_group()
    view.add_argument("--off-cpu", action="store_true", help="where it waited, a millisecond or more at a time")
    view.add_argument("--wall", action="store_true", help="where it ran or waited")
    return view


def add_span(command: argparse.ArgumentParser) -> None:
    """--since and --until."""
    when = "30m, 2h ago, or a time: 14:05, 2026-01-31T14:05"
    command.add_argument("--since", type=_moment, metavar="TIME", help=f"only what was taken after that: {when}")
    command.add_argument("--until", type=_moment, metavar="TIME", help="only what was taken before that")


def _moment(value: str) -> float:
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(value[-1:], 0)
    if unit and value[:-1].isdecimal() and len(value) < 9:
        return time.time() - int(value[:-1]) * unit
    try:
        if len(value) <= 8 and ":" in value:
            value = f"{datetime.date.today().isoformat()}T{value}"
        return datetime.datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        message = f"{value!r} is no time: write 30m, 2h (ago), 14:05 or 2026-01-31T14:05"
        raise argparse.ArgumentTypeError(message) from None


def _lines(value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) <= 10_000:
        raise argparse.ArgumentTypeError(f"{value!r} is no number of lines from 1 to 10000")
    return int(value)
