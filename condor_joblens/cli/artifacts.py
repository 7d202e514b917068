"""`joblens artifacts ID [NAME]`: what joblensd has kept about a job of this node, and one of these as a file."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import stat
import sys
import time

from condor_joblens.cli import afar
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.terminal import style
from condor_joblens.cli.units import memory
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.control import SOCKET, client
from condor_joblens.shm.artifact_header import HEADER_BYTES, Artifact, parse_alone

UNCONFIRMED = "of this job by its own ad: it was over before its startd had confirmed that"
"""Of an artifact with a claimed run."""

COLUMNS = ("NAME", "SIZE", "FROM", "TO", "TYPE")


def run(options: argparse.Namespace) -> int:
    """Lists, or writes one artifact to a file or to standard output; exit code 0."""
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    if options.name is None:
        if options.output is not None:
            raise UsageError("-o needs the name of an artifact: `joblens artifacts ID` lists them")
        show(listed(path, options.id), options.json)
        return 0
    artifact, content = fetched(path, options.id, options.name)
    if options.output is not None:
        write(options.output, content)
        print(f"{options.output}: {artifact.name}, {memory(artifact.length)} of {encoded_type(artifact)}")
        return 0
    is_text = artifact.content_type.startswith("text/") and not artifact.content_encoding
    if sys.stdout.isatty() and not is_text:
        raise JobLensError(f"{artifact.name} is {encoded_type(artifact)}: say with -o FILE where to write it")
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
    return 0


def listed(path: str, job: str, *, is_cluster: bool = False, only_here: bool = False) -> list[Artifact]:
    """The artifacts of a job's last run on this node, or of all runs of a cluster, the oldest first.

    If there are none here, those of its present run from afar, unless `only_here`. Raises JobLensError.
    """
    found = []
    asks = client.stream if only_here else afar.kept_whole
    with contextlib.closing(asks(path, "artifacts", _asked(job, is_cluster))) as messages:
        for message in messages:
            for at in range(0, len(message), HEADER_BYTES):
                found.append(parse_alone(message[at : at + HEADER_BYTES]))
    return found


def fetched(
    path: str, job: str, name: str, *, is_cluster: bool = False, only_here: bool = False
) -> tuple[Artifact, bytes]:
    """The artifact of that name, or the newest of that kind, with its content. Raises JobLensError."""
    asks = client.stream if only_here else afar.kept_whole
    with contextlib.closing(asks(path, "artifacts", {**_asked(job, is_cluster), "name": name})) as messages:
        file = b"".join(messages)
    artifact, content = parse_alone(file[:HEADER_BYTES]), file[HEADER_BYTES:]
    if len(content) != artifact.length or hashlib.sha256(content).digest() != artifact.sha256:
        raise JobLensError(f"{artifact.name} did not arrive whole: try again")
    return artifact, content


def _asked(job: str, is_cluster: bool) -> dict[str, str]:
    return {"job": job, "all": "1"} if is_cluster else {"job": job}


def write(path: str, content: bytes) -> None:
    """Writes the file anew, for its owner alone, and through no link but /dev/stdout's. Raises JobLensError."""
    no_links = 0 if path.startswith("/dev/") else os.O_NOFOLLOW
    try:
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags | no_links, 0o600)) as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                os.fchmod(file.fileno(), 0o600)
            file.write(content)
    except OSError as error:
        raise JobLensError(f"{path} can't be written: {error.strerror}") from None


def show(found: list[Artifact], as_json: bool) -> None:
    """Prints the list."""
    if as_json:
        import json

        print(json.dumps([described(artifact) for artifact in found], indent=2))
        return
    look = style()
    lines = [COLUMNS, *map(cells, found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    for number, line in enumerate(lines):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
        print(look.paint(look.fit(text), *(() if number else ("dim",))))
    if some := [artifact.name for artifact in found if artifact.claimed_run]:
        print(look.fit(f"{', '.join(some)}: {UNCONFIRMED}"))


def cells(artifact: Artifact) -> tuple[str, ...]:
    """A line of the list."""
    begun, ended = (time.strftime("%m-%d %H:%M:%S", time.localtime(at)) for at in (artifact.begun, artifact.ended))
    return artifact.name, memory(artifact.length), begun, ended, encoded_type(artifact)


def encoded_type(artifact: Artifact) -> str:
    """`text/plain`, or `application/octet-stream (gzip)`."""
    encoding = f" ({artifact.content_encoding})" if artifact.content_encoding else ""
    return printable(artifact.content_type + encoding)


def of_run(artifact: Artifact) -> dict[str, str]:
    """The artifact's run in JSON; ClaimedRun is what the job's own ad calls it, if no startd has confirmed that."""
    return {"Run": artifact.run, **({"ClaimedRun": artifact.claimed_run} if artifact.claimed_run else {})}


def described(artifact: Artifact) -> dict[str, object]:
    """The artifact in JSON, by the names of sinks' records."""
    return {
        "Artifact": artifact.name,
        "Kind": artifact.kind,
        **of_run(artifact),
        "RunNumber": artifact.run_number,
        "Owner": artifact.owner,
        "Slot": artifact.slot,
        "BeginTime": artifact.begun,
        "EndTime": artifact.ended,
        "Bytes": artifact.length,
        "ContentType": artifact.content_type,
        "ContentEncoding": artifact.content_encoding,
        "Sha256": artifact.sha256.hex(),
    }
