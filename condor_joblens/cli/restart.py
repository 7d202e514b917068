"""`joblens restart`: the daemons of this node begin anew, and running jobs lose no number.

joblensd is asked to hand over (SIGUSR1) rather than to stop: what counts stays in the kernel, and its successor goes
on with it. condor_master starts it again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Callable

from condor_joblens import __version__
from condor_joblens.cli import units
from condor_joblens.cli.checks import daemons, event_log, from_afar
from condor_joblens.cli.checks.checked_node import CheckedNode
from condor_joblens.cli.runs import Run, ended, living, run_dir
from condor_joblens.common.condor_commands import ask
from condor_joblens.common.errors import JobLensError
from condor_joblens.model.metrics import text
from condor_joblens.shm.reader import rows_of_any_version, writer_of_any_version

SUPERVISOR = "condor_joblens.export.supervisor"

OTHERS = {**from_afar.IN_DAEMON_LIST, **event_log.IN_DAEMON_LIST}
"""What else condor_master may be told to start, on nodes and access points: its name in DAEMON_LIST -> its module."""

PATIENCE = 180.0
"""Seconds for condor_master, which waits 10 s before it starts a daemon again, and longer if that has ended often."""

ENOUGH = 30.0
"""Seconds in which joblensd hands over, however busy the node is; a round takes one."""

_LOOK_EVERY = 0.2

_LOGS = "see JobLensdLog and MasterLog in condor_config_val LOG"


def run(options: argparse.Namespace) -> int:
    """Restarts them and says what became of the jobs; exit code 0. Raises JobLensError if one does not come back."""
    if os.geteuid() != 0:
        raise JobLensError("only root can restart joblensd: run it as root")
    node, folder = CheckedNode(), run_dir(options.run_dir)
    wanted = node.words("DAEMON_LIST")
    others = [name for name in OTHERS if name in wanted]
    if "JOBLENSD" not in wanted:
        if not others:
            raise JobLensError("JOBLENSD is not in DAEMON_LIST: nothing of JobLens runs here; on an access point "
                               "condor_reconfig is enough")  # fmt: skip
        return _restart_access_point(node, others, options.json)
    before = _writer(node, folder)
    goes_on = _living_runs(folder)
    is_known = bool(before or goes_on)  # one that has been stopped leaves no rows
    if before:
        _end_joblensd(node, before)
    else:
        ask("condor_reconfig")  # after an install condor_master does not know of joblensd before this
    restarted = [f"joblensd {__version__}"]
    if "JOBLENS_EXPORT" in wanted:
        _restart_exporter(node)
        restarted.append("joblens-export")
    restarted += _restart_others(node, others)
    after = _until(lambda: _publishing(node, folder, before), "condor_master to start joblensd")
    if _restart_publishers(node):
        restarted.append("joblens_publish")
    lost = goes_on - {each.fact("run") for each in [*_runs(folder), *ended(folder)]}
    if options.json:
        import json

        print(json.dumps({"Version": __version__, "Before": before, "After": after,
                          "Jobs": len(goes_on) if is_known else None, "Lost": sorted(lost)}))  # fmt: skip
    else:
        jobs = f"{units.count(len(goes_on) - len(lost), 'job')} {'goes' if len(goes_on) - len(lost) == 1 else 'go'} on"
        if not is_known:
            jobs = "it did not run, so nobody knows which jobs went on; joblens status lists those that run"
        print(f"{', '.join(restarted)}: restarted, joblensd as process {after}; {jobs}")
    if lost:
        raise JobLensError(f"{units.count(len(lost), 'job')} of those before are not known any more; {_LOGS}")
    return 0


def _end_joblensd(node: CheckedNode, pid: int) -> None:
    """One that hangs is killed: the kernel goes on counting then, too."""
    _signal(pid, signal.SIGUSR1)
    try:
        _until(lambda: not node.is_module(pid, daemons.AGENT), "", ENOUGH)
    except JobLensError:
        _signal(pid, signal.SIGKILL)
        _until(lambda: not node.is_module(pid, daemons.AGENT), f"process {pid} (joblensd) to end")


def _writer(node: CheckedNode, folder: str) -> int:
    """The joblensd that runs, of whatever version; 0 if none does."""
    try:
        pid = writer_of_any_version(os.path.join(folder, "rows"))
    except JobLensError:
        return 0
    return pid if node.is_module(pid, daemons.AGENT) else 0


def _publishing(node: CheckedNode, folder: str, before: int) -> int:
    """The joblensd that has begun to publish rows after the process `before`; 0 if none has."""
    pid = _writer(node, folder)
    if pid in (0, before):
        return 0
    try:
        return pid if living(folder)[1] > 0 else 0
    except JobLensError:
        return 0


def _living_runs(folder: str) -> set[str]:
    """The runs that go on, from rows of whatever version: an upgrade may have put another beside them."""
    try:
        rows = rows_of_any_version(os.path.join(folder, "rows"))
    except JobLensError:
        return set()
    return {text(bytes(name)) for name in rows["run"][~rows["final"]].tolist()}


def _runs(folder: str) -> list[Run]:
    try:
        return living(folder)[0]
    except JobLensError:
        return []


def _restart_access_point(node: CheckedNode, others: list[str], as_json: bool) -> int:
    """The same on a machine without joblensd."""
    restarted = _restart_others(node, others)
    if as_json:
        import json

        print(json.dumps({"Version": __version__, "Restarted": restarted}))
    else:
        print(f"{', '.join(restarted)}: restarted, {__version__}")
    return 0


def _restart_others(node: CheckedNode, wanted: list[str]) -> list[str]:
    """joblens-door, joblens-relay and joblens-eventlog, as far as they are wanted here; their names."""
    names = {name: name.lower().replace("_", "-") for name in wanted}
    for name in wanted:
        _end(node, OTHERS[name], names[name])
    for name in wanted:
        _begin(node, OTHERS[name], names[name])
    return list(names.values())


def _restart_exporter(node: CheckedNode) -> None:
    _end(node, SUPERVISOR, "joblens-export")
    ask("condor_on", "-subsystem", "joblensd")
    _begin(node, SUPERVISOR, "joblens-export")


def _end(node: CheckedNode, module: str, name: str) -> None:
    """Ends it, if it runs."""
    before = node.runs(module)
    if before is not None:
        _signal(before, signal.SIGTERM)
        _until(lambda: not node.is_module(before, module), f"process {before} ({name}) to end")


def _begin(node: CheckedNode, module: str, name: str) -> None:
    """Has condor_master start it: what has been switched off by hand is wanted again."""
    ask("condor_on", "-subsystem", name.replace("-", "_"))
    _until(lambda: node.runs(module), f"condor_master to start {name}")


def _restart_publishers(node: CheckedNode) -> bool:
    """One a startd; the startds start them again. Whether there was any."""
    before = [
        int(name) for name in node.names("/proc") if name.isdigit() and node.is_module(int(name), daemons.PUBLISH)
    ]
    for pid in before:
        _signal(pid, signal.SIGTERM)
    if before:
        _until(lambda: node.runs(daemons.PUBLISH) not in (None, *before), "the startd to start joblens_publish")
    return bool(before)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _until(condition: Callable[[], int | bool | None], what: str, seconds: float = PATIENCE) -> int:
    """Asks until the answer is true, and returns it. Raises JobLensError after `seconds`."""
    until = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > until:
            raise JobLensError(f"waited {seconds:.0f} s for {what}; {_LOGS}")
        time.sleep(_LOOK_EVERY)
    return int(answer)
