"""`joblens level ID io --for 10m`: how closely a running job is watched, changed by hand for a while.

With `--cluster` that is every running job of a cluster (many.py).
"""

from __future__ import annotations

import argparse
import os

from condor_joblens.cli import afar
from condor_joblens.cli.runs import run_dir
from condor_joblens.common.errors import UsageError, printable
from condor_joblens.control import SOCKET, client
from condor_joblens.model.levels import SITE_DEFAULT

_EITHER = "a level is either given or taken back: leave LEVEL or --clear away"


def run(options: argparse.Namespace) -> int:
    """Asks joblensd; exit code 0."""
    if options.level is not None and options.clear:
        raise UsageError(_EITHER)
    if options.cluster is not None:
        return _of_cluster(options)
    if options.id is None:
        raise UsageError("name a job: joblens level 12.0, or all of a cluster by --cluster 12")
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    answer = afar.told(path, "level", {"job": options.id, **_arguments(options)})
    if options.json:
        import json

        print(json.dumps(_record(answer), indent=2))
    else:
        print(sentence(answer))
    return 0


def _of_cluster(options: argparse.Namespace) -> int:
    """Raises JobLensError."""
    from condor_joblens.cli import many

    if options.level is not None:
        raise UsageError("with --cluster there is no ID: joblens level --cluster 12 io")
    options.level = options.id
    if options.level is not None and options.clear:
        raise UsageError(_EITHER)
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    arguments = _arguments(options)
    client.check("level", {"job": str(options.cluster), **arguments})
    return many.run(
        options.cluster,
        lambda job: afar.told(path, "level", {"job": job, **arguments}),
        lambda _, slot, answer: sentence({**answer, "slot": slot}),
        _record if options.json else None,
    )


def _record(answer: dict[str, str]) -> dict[str, str]:
    """The answer by the names that rows have."""
    from condor_joblens.model.metrics import FIELDS

    names = {field.name: field.record_name for field in FIELDS}
    return {names.get(column, column): value for column, value in answer.items()}


def _arguments(options: argparse.Namespace) -> dict[str, str]:
    """What is asked for, of whatever job."""
    arguments: dict[str, str] = {}
    if options.level is not None:
        arguments.update({"level": options.level, "for": str(options.seconds)})
    elif options.clear:
        arguments["clear"] = "1"
    return arguments


def sentence(answer: dict[str, str]) -> str:
    """What joblensd answered, for people."""
    names = ("reason",) if answer.get("reason") == SITE_DEFAULT else ("policy", "reason")
    because = ", ".join(answer[name] for name in names if answer.get(name))
    notes = f"\n{answer['note']}" if answer.get("note") else ""
    job, slot, level = (printable(answer.get(name, "?")) for name in ("job_id", "slot", "level"))
    return f"job {job} in {slot} is watched at {level}{f': {because}' if because else ''}{notes}"
