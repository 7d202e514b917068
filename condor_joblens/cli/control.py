"""`joblens control add --user alice --at-least io --for 1h --reason WHY`: for a time, who is watched how closely.

That is an entry. It is said on the relay server's machine, and holds on all nodes that take entries.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from condor_joblens.cli.argument_types import duration
from condor_joblens.cli.policy_costs import SWITCHES, SYSCALLS, gained
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.common.time_of_day import time_of_day
from condor_joblens.control import client
from condor_joblens.control.entries import MAX_PERIOD, MAX_REASON, MIN_PERIOD, SOCKET

PATIENCE = 10.0
"""Seconds to wait for an answer: for a preview the server waits for 3 s itself."""

_DONE = "done"
_LEVELS = "off, basic, io, profile or trace"
_SELECTORS = {
    "user": ("NAME", "jobs of this user; with its domain (alice@pool) only of that pool's"),
    "group": ("GROUP", "jobs of this accounting group, and of those below it, in whatever case it is written"),
    "vo": ("VO", "jobs of this virtual organisation, by the proxy"),
    "executable": ("NAME", "jobs of this program, without its folder"),
    "node": ("HOST", "jobs on this node"),
    "expression": ("EXPR", "jobs of whose ad this ClassAd expression is true"),
    "cluster": ("CLUSTER", "jobs of this cluster: with --user, as each access point has such a number"),
}


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Those of preview, add, list, end and key."""
    command.add_argument(
        "--socket", metavar="SOCKET", default=SOCKET, help=f"where the relay server is asked ({SOCKET})"
    )
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_entry(actions.add_parser("preview", help="how many running jobs an entry would be for; it does not hold"))
    add = actions.add_parser("add", help="an entry holds from now on, also for jobs that start later")
    _add_entry(add)
    add.add_argument("--yes", action="store_true", help="without a question at a terminal")
    actions.add_parser("list", help="the entries that hold, and how many nodes have taken them")
    end = actions.add_parser("end", help="an entry ends before its time")
    end.add_argument("name", metavar="ENTRY", help="its name, as list tells it")
    actions.add_parser("key", help="the server's public key, for JOBLENS_HUB_KEY on the nodes")
    for action in actions.choices.values():  # also where one writes it last; what stands before ACTION is kept
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, for programs")


def _add_entry(add: argparse.ArgumentParser) -> None:
    for name, (metavar, help) in _SELECTORS.items():
        add.add_argument(f"--{name}", metavar=metavar, help=help)
    add.add_argument("--at-least", metavar="LEVEL", dest="least", help=f"{_LEVELS}; whatever policies and owners say")
    add.add_argument("--at-most", metavar="LEVEL", dest="most", help="no closer than this")
    add.add_argument("--exactly", metavar="LEVEL", help="both; so without --at-least and --at-most")
    help = f"how often their numbers are taken, from {MIN_PERIOD:g} to {MAX_PERIOD:g}"
    add.add_argument("--period", metavar="SECONDS", help=help)
    help = "30s, 10m, 2h; at most 24h. Then it ends, whether the server lives or not"
    add.add_argument("--for", type=duration, required=True, metavar="TIME", dest="seconds", help=help)
    help = f"for those who ask why their jobs are watched so; at most {MAX_REASON} printable ASCII characters"
    add.add_argument("--reason", required=True, metavar="WHY", help=help)


def run(options: argparse.Namespace) -> int:
    """Asks the relay server; exit code 0. Raises JobLensError."""
    fields: dict[str, str] = {}
    if options.action in ("add", "preview"):
        fields = _entry(options)
    elif options.action == "end":
        fields = {"name": options.name}
    shown = {"Preview": _shown_before(options, fields)} if options.action == "add" else {}
    if options.action == "preview":
        answer = _previewed(options.socket, fields)
    else:
        answer = {**shown, **_asked(options.socket, options.action, fields)}
    if options.json:
        print(json.dumps(answer, indent=2))
    else:
        print("\n".join(_lines(options.action, answer)))
    return 0


def _previewed(path: str, fields: dict[str, str]) -> dict[str, Any]:
    """With the cores that the nodes spend more, all together. Raises JobLensError."""
    answer = _asked(path, "preview", fields)
    return {**answer, "CoresGained": gained(answer["Before"], answer["After"], answer["Begun"])}


def _shown_before(options: argparse.Namespace, fields: dict[str, str]) -> dict[str, Any]:
    """The preview of an entry, which whoever adds it has seen before it holds. Raises JobLensError if he won't."""
    answer = _previewed(options.socket, {**fields, "is_added": "1"})
    if not options.json:
        print("\n".join(_preview(answer)), file=sys.stderr)
    if sys.stdin.isatty() and not options.yes:
        print("Does it hold from now on? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise JobLensError("no entry was added")
    return answer


def _entry(options: argparse.Namespace) -> dict[str, str]:
    """Raises JobLensError."""
    if options.exactly is not None and (options.least, options.most) != (None, None):
        other = "at-most" if options.least is None else "at-least"
        raise UsageError(f"--exactly says both bounds: leave --{other} away, or write --at-least and --at-most alone")
    empty = [name for name in _SELECTORS if getattr(options, name) == ""]
    if empty:  # as from a variable of a shell that is not set: nobody means all jobs by that
        raise UsageError(f"--{empty[0]} is empty: name whom, or leave it away if the entry is for all jobs")
    values = {name: getattr(options, name) for name in (*_SELECTORS, "least", "most", "period", "reason")}
    if options.exactly is not None:
        values["least"] = values["most"] = options.exactly
    if options.expression is not None and not _can_be_parsed(options.expression):
        raise UsageError(f"--expression: {printable(options.expression, 200)} is no ClassAd expression")
    return {"seconds": str(options.seconds), **{name: value for name, value in values.items() if value}}


def _can_be_parsed(expression: str) -> bool:
    """Whether nodes can read it: what they can't is for no job. Without HTCondor's Python nobody knows here."""
    try:
        from condor_joblens.policy.jobad import is_expression
    except ImportError:
        return True
    return is_expression(expression)


def _asked(path: str, action: str, fields: dict[str, str]) -> dict[str, Any]:
    """The server's answer. Raises JobLensError."""
    parts = list(client.stream(path, action, fields, PATIENCE, client.HUB, grants=_DONE))
    try:
        answer: dict[str, Any] = json.loads(b"".join(parts))
    except ValueError:
        raise JobLensError("the relay server answers in another protocol: install the same version of both") from None
    return answer


def _lines(action: str, answer: dict[str, Any]) -> list[str]:
    if action == "key":
        return [printable(answer["Key"], 100)]
    if action == "preview":
        return _preview(answer)
    if action != "list":
        word, entry = ("entry", answer["Added"]) if action == "add" else ("ended:", answer["Ended"])
        return [f"{word} {_sentence(entry)}", _nodes(answer) + _ask_later(answer)]
    entries = [_sentence(entry) for entry in answer["Entries"]] or ["no entry holds"]
    reasons = [f"{printable(node, 100)}: {printable(why, 200)}" for node, why in answer["Reasons"].items()]
    return [*entries, _nodes(answer), *reasons]


def _sentence(entry: dict[str, Any]) -> str:
    until = time_of_day(entry["Until"])
    said = f"{entry['Name']} for {entry['Whom']}: {entry['What']}, by {entry['Role']} {entry['Author']} until {until}"
    return printable(f"{said}: {entry['Reason']}", 1000)


def _nodes(answer: dict[str, Any]) -> str:
    nodes, taken, refused = answer["Nodes"], answer["Taken"], answer["Refused"]
    silent = nodes - taken - refused
    parts = [f"taken by {taken} of {_many(nodes, 'connected node')}"]
    parts += [f"{refused} {'refuses' if refused == 1 else 'refuse'}"] if refused else []
    parts += [f"{silent} {'has' if silent == 1 else 'have'} not answered yet"] if silent else []
    return ", ".join(parts)


def _ask_later(answer: dict[str, Any]) -> str:
    """Of what is new the server tells after two seconds at most, before slow nodes have answered."""
    return ": ask `joblens control list`" if answer["Taken"] + answer["Refused"] < answer["Nodes"] else ""


def _preview(answer: dict[str, Any]) -> list[str]:
    """How many jobs an entry would be for, what that costs, and which entries say the opposite."""
    silent, capped = answer["Nodes"] - answer["Answered"], answer["Capped"]
    verb = "has not answered, or refuses" if silent == 1 else "have not answered, or refuse"
    nobody = f". {silent} of {_many(answer['Nodes'], 'connected node')} {verb}" if silent else ""
    lines = [f"{_matched(answer)}{nobody}"]
    if capped:
        are, their = ("is", "its node allows") if capped == 1 else ("are", "their nodes allow")
        lines.append(f"{capped} of them {are} not as close as it says: {their} less to entries")
    if answer["NodesWithJobs"]:
        lines.append(_costs(answer))
    others = answer["Contradicts"]
    return lines + [f"contradicts entry {_sentence(each)} ({_many(each['Jobs'], 'running job')})" for each in others]


def _matched(answer: dict[str, Any]) -> str:
    """`matches 12 running jobs on 2 nodes: 10 would be raised, 0 lowered`, and how many others keep from it."""
    jobs, raised, lowered, beaten = (answer[name] for name in ("Jobs", "Raised", "Lowered", "Beaten"))
    if not jobs:
        return "matches no running job: it would be for jobs that start later"
    most, nodes = "at most " if answer["AtMost"] else "", _many(answer["NodesWithJobs"], "node")
    changes = f"{raised} would be raised, {lowered} lowered"
    if beaten:
        changes += f", {beaten} would not be as it says, because others have the last word"
    return f"matches {most}{_many(jobs, 'running job')} on {nodes}: {changes}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _costs(answer: dict[str, Any]) -> str:
    """`these nodes gain 0.4 % of a core each, on average, if ...`."""
    share = round(100 * abs(answer["CoresGained"]) / answer["NodesWithJobs"], 4)  # sums of floats are not quite 0
    verb = "are spared" if answer["CoresGained"] < 0 else "gain"
    supposed = f"{SYSCALLS:,} system calls and {SWITCHES:,} context switches a second in each job (docs/policies.md)"
    return f"these nodes {verb} {share:.2g} % of a core each on average, by what was measured, at {supposed}"
