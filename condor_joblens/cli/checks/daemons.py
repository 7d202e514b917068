"""Whether what should run on an execute node does, and how fresh its numbers are."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from condor_joblens.cli import units
from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, fail, ok, warn
from condor_joblens.common.bpffs import BPFFS, PINS
from condor_joblens.common.privilege import AGENT_USER, FILES_USER, POLICY_USER

if TYPE_CHECKING:
    from condor_joblens.shm.reader import Reader

AGENT, EXPORT, PUBLISH = "condor_joblens.agent", "condor_joblens.export", "condor_joblens.publish.slotads"

STARTS_WITHIN = 10.0
"""Seconds that joblensd takes to load its programs, on a busy machine."""

_LOG = "see JobLensdLog in condor_config_val LOG, then joblens restart"


def accounts(node: CheckedNode) -> Iterator[Finding]:
    """User and group joblens: the rows are theirs to read. HTCondor's own user reads them by an access list.

    Policies run as a user of their own, which joblens-export can't reach, and so does what works in jobs' folders.
    """
    users, groups = (
        [line.split(":")[0] for line in (node.read(path) or "").splitlines()] for path in ("/etc/passwd", "/etc/group")
    )
    if "joblens" not in groups or "joblens" not in users:
        yield fail("there is no user or no group joblens", "systemd-sysusers, or make install")
        return
    remedy = "systemd-sysusers, or make install; then restart joblensd"
    if POLICY_USER not in users:
        yield warn(
            f"there is no user {POLICY_USER}: policies run as joblens, and joblens-export could end them", remedy
        )
    if FILES_USER not in users:
        what = f"there is no user {FILES_USER}: what works in jobs' folders runs as another user, who could end it"
        yield warn(what, remedy)
    if AGENT_USER not in users:
        yield warn(f"there is no user {AGENT_USER}: joblensd stays root for as long as it runs", remedy)
    if {POLICY_USER, FILES_USER, AGENT_USER} <= set(users):
        yield ok(f"users joblens, {POLICY_USER}, {FILES_USER} and {AGENT_USER}, group joblens")


def joblensd(node: CheckedNode) -> Iterator[Finding]:
    """The writer of the rows is alive."""
    rows = node.of_joblensd("rows")
    starting = _wait_for_its_start(node)
    if not os.path.exists(rows):
        why = f"process {starting} starts, or can't" if starting else "joblensd does not run"
        yield fail(f"{rows} is not there: {why}", _LOG)
        return
    pid = _reader(rows).writer_pid
    if node.is_module(pid, AGENT):
        yield ok(f"runs as process {pid}{_as_whom(node, pid)}")
    elif node.exists(f"/proc/{pid}") and node.uid != 0:
        yield warn(f"process {pid} is there, but this user may not see what it is", "run joblens doctor as root")
    else:
        yield fail(f"process {pid}, which wrote the rows, is gone", _LOG)


def _as_whom(node: CheckedNode, pid: int) -> str:
    """Whether it could give root up, as far as that can be told."""
    uid = re.search(r"^Uid:\t(\d+)", node.read(f"/proc/{pid}/status") or "", re.MULTILINE)
    if uid is None:
        return ""
    return ", which has to stay root on this node: JobLensdLog says why" if uid[1] == "0" else ", and not as root"


def _wait_for_its_start(node: CheckedNode) -> int | None:
    """Right after condor_reconfig joblensd is about to make its files; the process that still is, where one is."""
    until = time.monotonic() + STARTS_WITHIN
    while not os.path.exists(node.of_joblensd("activate.sock")):
        pid = node.runs(AGENT)
        if pid is None or not node.live or time.monotonic() > until:
            return pid
        time.sleep(0.2)
    return None


def freshness(node: CheckedNode) -> Iterator[Finding]:
    """The age of the last row."""
    rows = node.of_joblensd("rows")
    if not os.path.exists(rows):
        return  # said above
    found, taken = _reader(rows).rows()
    age = (time.time() if node.live else os.stat(rows).st_mtime) - taken
    if taken == 0:
        yield warn("nothing has been published yet", "look again in a second")
    elif age > max(5.0, 5 * node.config.period):
        yield fail(f"{units.duration(age)} old, taken every {node.config.period:g} s", _LOG)
    else:
        yield ok(f"{units.count(len(found), 'job')}, {units.duration(age)} old")


def _reader(rows: str) -> Reader:
    if not os.access(rows, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), rows)
    from condor_joblens.shm.reader import Reader

    return Reader(rows)


def activation(node: CheckedNode) -> Iterator[Finding]:
    """Job wrappers can tell joblensd that a job starts."""
    path = node.of_joblensd("activate.sock")
    if not os.path.exists(path):
        yield fail(f"{path} is not there, so that jobs start untold of", _LOG)
    elif why := node.gets_no_answer(path):
        yield fail(f"{path}: {why}", _LOG)
    elif os.stat(path).st_mode & 0o002 == 0:
        yield fail(f"{path} is not for everybody", _LOG)
    else:
        yield ok(f"{path} answers")


def pins(node: CheckedNode) -> Iterator[Finding]:
    """With them counting outlives joblensd."""
    if node.config.source == "procfs":
        return
    links = [
        name
        for folder in node.names(PINS)
        for sensor in node.names(f"{PINS}/{folder}")
        for name in node.names(f"{PINS}/{folder}/{sensor}/links")
    ]
    if links:
        yield ok(f"{units.count(len(links), 'program')} attached and pinned under {PINS}")
    elif node.runs(AGENT) and os.path.exists(node.of_joblensd("rows")):
        yield warn(f"none under {PINS}: counting stops when joblensd does", f"mount bpffs at {BPFFS}, restart")
    else:
        yield warn(f"none under {PINS}: nothing is being counted", _LOG)


def publisher(node: CheckedNode) -> Iterator[Finding]:
    """The cron hook of the startd."""
    pid = node.runs(PUBLISH)
    if pid is not None:
        yield ok(f"joblens_publish runs as process {pid}")
    else:
        yield warn(
            "joblens_publish does not run, or this user may not see it: condor_status shows no numbers",
            "see StartLog in condor_config_val LOG, then condor_reconfig -startd",
        )


def exporter(node: CheckedNode) -> Iterator[Finding]:
    """The unprivileged half, with the network."""
    if "JOBLENS_EXPORT" not in node.words("DAEMON_LIST"):
        yield ok("not in DAEMON_LIST, so not wanted")
        return
    pid = node.runs(EXPORT)
    if pid is None:
        yield warn(
            "joblens-export does not run, or this user may not see it: no sink gets anything",
            "see JobLensExportLog in condor_config_val LOG, then joblens restart",
        )
    else:
        yield ok(f"runs as process {pid}")
