"""ps, tail, log, get, env, kill, trace and others: root, or the owner of a job, has something done in the job.

The job's owner does it, whoever asks; a trace is attached by a process of ours, and he opens the files.

Each is a line in joblensd's log: who, what, in which run. Contents of files are never in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from condor_joblens.commands import authority, find_run
from condor_joblens.commands.authority import asker, payer
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.common.errors import printable
from condor_joblens.common.signals import signal_name
from condor_joblens.control.audit import Audit
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import MOST_TRACE_SECONDS, Refused, Request
from condor_joblens.model.metrics import text

Arguments = dict[str, Any]

TRACE_SECONDS = 10
"""How long functions are traced, if nobody says."""

PEEK_EVERY = 2
"""Seconds between two values of a series, if nobody says."""

REQUESTS: dict[str, Callable[[Arguments], dict[str, object]]] = {
    "ps": lambda _: {},
    "tail": lambda given: {
        "file": given["file"],
        "lines": given["lines"],
        "follow": given.get("follow", False),
    },
    "head": lambda given: {"file": given["file"], "lines": given["lines"]},
    "cat": lambda given: {"file": given["file"]},
    "log": lambda given: {"lines": given["lines"], "follow": given.get("follow", False)},
    "get": lambda given: {"file": given["file"], "offset": given.get("offset", 0)},
    "env": lambda given: {"pid": given.get("pid", 0)},
    "peek": lambda given: {
        "spec": given["spec"],
        "pid": given.get("pid", 0),
        "follow": given.get("follow", False),
        "every": given.get("every", PEEK_EVERY),
        "seconds": given.get("seconds", MOST_TRACE_SECONDS),
    },
    "node": lambda _: {},
    "ls": lambda given: {"folder": given.get("folder", ".")},
    "kill": lambda given: {"pid": given.get("pid", 0), "signal": given["signal"]},
    "trace": lambda given: {
        "spec": given.get("spec", ""),
        "seconds": given.get("seconds", TRACE_SECONDS),
        "follow": given.get("follow", False),
    },
}
"""Each verb, and what the owner's child is asked (owner_commands/)."""

MOST_JOBS = 200
"""Jobs that `node` lists."""

_SAID: dict[str, Callable[[Arguments], str]] = {
    "ps": lambda _: "ps",
    "tail": lambda given: f"tail{' -f' if given.get('follow') else ''} {printable(given['file'], 200)}",
    "head": lambda given: f"head {printable(given['file'], 200)}",
    "cat": lambda given: f"cat {printable(given['file'], 200)}",
    "log": lambda given: f"log{' -f' if given.get('follow') else ''}",
    "get": lambda given: f"get {printable(given['file'], 200)} from byte {given.get('offset', 0)} on",
    "env": lambda given: f"env {given.get('pid') or ''}".rstrip(),
    "peek": lambda given: (
        f"peek {printable(given['spec'], 200)} {given.get('pid') or ''}".rstrip()
        + (f" --every {given.get('every', PEEK_EVERY)}s" if given.get("follow") else "")
    ),
    "node": lambda _: "node",
    "ls": lambda given: f"ls {printable(given.get('folder', '.'), 200)}",
    "trace": lambda given: f"trace {'--follow' if given.get('follow') else printable(given.get('spec', ''), 200)}",
    "kill": lambda given: f"kill {signal_name(given['signal'])} {given.get('pid') or ''}".rstrip(),
}
"""Each verb in a line of the log."""


def begin(node: NodeProtocol, audit: Audit, request: Request, stream: Stream) -> None:
    """Finds the run, checks who asks, and has it done. Raises Refused."""
    said = _SAID[request.verb](request.arguments)
    try:
        if request.verb == "trace" and ("spec" in request.arguments) == request.arguments.get("follow", False):
            raise Refused("trace needs either spec or follow")
        audit.pace(payer(request))
        run = find_run.of(node, request)
        authority.check(node, request, run)
        asked = {"verb": request.verb, **REQUESTS[request.verb](request.arguments), **_ours(node, request, run)}
        node.do_as_owner(run, payer(request), asked, stream)
    except Refused as refused:
        job = printable(request.arguments["job"], 60)
        audit.refused(payer(request), f"job {job}: {asker(request)} asked for {said}, and was refused: {refused}")
        raise
    audit.granted(f"{node.describe(run)}: {asker(request)} asked for {said}")


def _ours(node: NodeProtocol, request: Request, run: int) -> dict[str, object]:
    """What the child needs besides, that no request says."""
    if request.verb == "env":
        return {"values": _is_owner(request)}  # others have names alone: whose values these are may see them
    if request.verb == "get":
        return {"most": node.config.get_max_bytes}
    return _jobs(node, request, run) if request.verb == "node" else {}


def _is_owner(request: Request) -> bool:
    if request.vouched is not None:
        return request.vouched.by == request.vouched.user and not request.vouched.is_staff
    return request.uid != 0


def _jobs(node: NodeProtocol, request: Request, run: int) -> dict[str, object]:
    """Those of the caller; of one from afar, those of the access point that vouches for him."""
    runs, rows = node.runs.living(), node.runs.rows
    found = [each for each in runs[node.runs.state["named"][runs]].tolist() if _is_his(node, request, run, each)]
    jobs = [
        {
            "JobId": text(rows["job_id"][each]),
            "Slot": text(rows["slot"][each]),
            "Level": text(rows["level"][each]),
            "StartTime": int(rows["start_time"][each]),
        }
        for each in found[:MOST_JOBS]
    ]
    return {"jobs": jobs, "more": len(found) - len(jobs)}


def _is_his(node: NodeProtocol, request: Request, run: int, other: int) -> bool:
    if request.uid != 0 and not authority.is_owner(node, request, other):
        return False
    if request.vouched is None:
        return True
    schedds = [bytes(node.runs.rows["global_job_id"][each]).partition(b"#")[0] for each in (run, other)]
    return other == run or (schedds[0] == schedds[1] != b"")
