"""`joblens level ID io --for 10m`: how closely a running job is watched, changed by hand for a while."""

from __future__ import annotations

import argparse
import os
import socket

from condor_joblens.cli.runs import run_dir
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.jobs.activation import MAX_ANSWER_BYTES, PROTOCOL
from condor_joblens.policy.precedence import DEFAULT

PATIENCE = 10.0
"""Seconds to wait for an answer: joblensd takes its time where many ask."""


def run(options: argparse.Namespace) -> int:
    """Asks joblensd; exit code 0."""
    if options.level is not None and options.clear:
        raise JobLensError("a level is either given or taken back: leave LEVEL or --clear away")
    claims = {"job": options.id}
    if options.level is not None:
        claims.update({"level": options.level, "for": str(options.seconds)})
    elif options.clear:
        claims["clear"] = "1"
    answer = ask(os.path.join(run_dir(options.run_dir), "activate.sock"), claims)
    if options.json:
        import json

        print(json.dumps(answer, indent=2))
    else:
        print(sentence(answer))
    return 0


def sentence(answer: dict[str, str]) -> str:
    """What joblensd answered, for people."""
    names = ("reason",) if answer.get("reason") == DEFAULT else ("policy", "reason")
    because = ", ".join(answer[name] for name in names if answer.get(name))
    notes = f"\n{answer['note']}" if answer.get("note") else ""
    job, slot, level = (printable(answer.get(name, "?")) for name in ("job_id", "slot", "level"))
    return f"job {job} in {slot} is watched at {level}{f': {because}' if because else ''}{notes}"


def ask(path: str, claims: dict[str, str]) -> dict[str, str]:
    """The fields of joblensd's answer. Raises JobLensError where it refuses or does not answer."""
    fields = [PROTOCOL.decode(), "level", *(f"{name}={value}" for name, value in claims.items())]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(path)
            connection.send(b"".join(field.encode("utf-8", "surrogateescape") + b"\0" for field in fields))
            packet = connection.recv(MAX_ANSWER_BYTES)
    except OSError as error:
        why = error.strerror or f"no answer within {PATIENCE:g} s"
        raise JobLensError(f"{path}: {why}; is joblensd running on this node? `joblens doctor` tells") from None
    return parse(packet)


def parse(packet: bytes) -> dict[str, str]:
    """The fields of an answer that grants. Raises JobLensError for any other."""
    protocol, _, rest = packet.partition(b"\0")
    verb, *parts = rest.split(b"\0")
    pairs = (part.decode("utf-8", "replace").partition("=") for part in parts if part)
    fields = {name: printable(value, MAX_ANSWER_BYTES) for name, _, value in pairs}
    if protocol != PROTOCOL:
        raise JobLensError("joblensd answers in another protocol: install the same version of both")
    if verb != b"done":
        raise JobLensError(f"joblensd refuses: {fields.get('reason', 'it does not say why')}")
    return fields
