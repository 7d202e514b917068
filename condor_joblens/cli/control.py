"""`joblens control add --user alice --at-least io --for 1h --reason WHY`: for a time, who is watched how closely.

That is an entry. It is said on the relay server's machine, and holds on all nodes that take entries.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from condor_joblens.cli.policy_costs import SWITCHES, SYSCALLS, gained
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import client
from condor_joblens.control.entries import SOCKET

PATIENCE = 10.0
"""Seconds to wait for an answer: for a preview the server waits for 3 s itself."""

_DONE = "done"
_LEVELS = "off, basic, io, profile or trace"
_SELECTORS = {
    "user": ("NAME", "jobs of this user; with its domain (alice@pool) only of that pool's"),
    "group": ("GROUP", "jobs of this accounting group, and of those below it"),
    "vo": ("VO", "jobs of this virtual organisation, by the proxy"),
    "executable": ("NAME", "jobs of this program, without its folder"),
    "node": ("HOST", "jobs on this node"),
    "expression": ("EXPR", "jobs of whose ad this ClassAd expression is true"),
    "cluster": ("CLUSTER", "jobs of this cluster: with --user, as each access point has such a number"),
}


def add_arguments(command: argparse.ArgumentParser, duration: Callable[[str], int]) -> None:
    """Those of preview, add, list, end and key. `duration` reads how long an entry holds."""
    command.add_argument(
        "--socket", metavar="SOCKET", default=SOCKET, help=f"where the relay server is asked ({SOCKET})"
    )
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_entry(
        actions.add_parser("preview", help="how many running jobs an entry would be for; it does not hold"), duration
    )
    add = actions.add_parser("add", help="an entry holds from now on, also for jobs that start later")
    _add_entry(add, duration)
    add.add_argument("--yes", action="store_true", help="without a question at a terminal")
    actions.add_parser("list", help="the entries that hold, and how many nodes have taken them")
    end = actions.add_parser("end", help="an entry ends before its time")
    end.add_argument("name", metavar="ENTRY", help="its name, as list tells it")
    actions.add_parser("key", help="the server's public key, for JOBLENS_HUB_KEY on the nodes")


def _add_entry(add: argparse.ArgumentParser, duration: Callable[[str], int]) -> None:
    for name, (metavar, help) in _SELECTORS.items():
        add.add_argument(f"--{name}", metavar=metavar, help=help)
    add.add_argument("--at-least", metavar="LEVEL", dest="least", help=f"{_LEVELS}; whatever policies and owners say")
    add.add_argument("--at-most", metavar="LEVEL", dest="most", help="no closer than this")
    add.add_argument("--exactly", metavar="LEVEL", help="both")
    add.add_argument("--period", metavar="SECONDS", help="how often their numbers are taken")
    help = "30s, 10m, 2h; at most 24h. Then it ends, whether the server lives or not"
    add.add_argument("--for", type=duration, required=True, metavar="TIME", dest="seconds", help=help)
    add.add_argument("--reason", required=True, metavar="WHY", help="for those who ask why their jobs are watched so")


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
    answer = _previewed(options.socket, fields)
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
        raise JobLensError("write --exactly, or --at-least and --at-most")
    values = {name: getattr(options, name) for name in (*_SELECTORS, "least", "most", "period", "reason")}
    if options.exactly is not None:
        values["least"] = values["most"] = options.exactly
    return {"seconds": str(options.seconds), **{name: value for name, value in values.items() if value}}


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
        lines = [f"{word} {_sentence(entry)}"]
        return lines if action == "end" else [*lines, _nodes(answer)]
    entries = [_sentence(entry) for entry in answer["Entries"]] or ["no entry holds"]
    reasons = [f"{printable(node, 100)}: {printable(why, 200)}" for node, why in answer["Reasons"].items()]
    return [*entries, _nodes(answer), *reasons]


def _sentence(entry: dict[str, Any]) -> str:
    until = time.strftime("%H:%M", time.localtime(entry["Until"]))
    said = f"{entry['Name']} for {entry['Whom']}: {entry['What']}, by {entry['Role']} {entry['Author']} until {until}"
    return printable(f"{said}: {entry['Reason']}", 1000)


def _nodes(answer: dict[str, Any]) -> str:
    nodes, taken, refused = answer["Nodes"], answer["Taken"], answer["Refused"]
    waits = f", {nodes - taken - refused} have not answered yet" if nodes - taken - refused else ""
    return f"taken by {taken} of {nodes} connected nodes, {refused} refuse{waits}"


def _preview(answer: dict[str, Any]) -> list[str]:
    """How many jobs an entry would be for, what that costs, and which entries say the opposite."""
    most = "at most " if answer["AtMost"] else ""
    jobs, raised, lowered, beaten = (answer[name] for name in ("Jobs", "Raised", "Lowered", "Beaten"))
    silent = answer["Nodes"] - answer["Answered"]
    nobody = f". {silent} of {answer['Nodes']} connected nodes have not answered, or refuse" if silent else ""
    changes = (
        f"{raised} would be raised, {lowered} lowered, {beaten} are not as it says, because others have the last word"
    )
    lines = [f"matches {most}{jobs} running jobs on {answer['NodesWithJobs']} nodes: {changes}{nobody}"]
    if answer["Capped"]:
        lines.append(f"{answer['Capped']} of them are not as close as it says: their nodes allow less to entries")
    if answer["NodesWithJobs"]:
        lines.append(_costs(answer))
    others = answer["Contradicts"]
    return lines + [f"contradicts entry {_sentence(each)} ({each['Jobs']} running jobs)" for each in others]


def _costs(answer: dict[str, Any]) -> str:
    """`these nodes gain 0.4 % of a core each, on average, if ...`."""
    share = 100 * abs(answer["CoresGained"]) / answer["NodesWithJobs"]
    verb = "are spared" if answer["CoresGained"] < 0 else "gain"
    supposed = f"{SYSCALLS:,} system calls and {SWITCHES:,} context switches a second in each job (docs/policies.md)"
    return f"these nodes {verb} {share:.2g} % of a core each on average, by what was measured, at {supposed}"
