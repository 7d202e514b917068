"""Whether joblens-eventlog runs on an access point, and the hub has what stands in the event log."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

from condor_joblens.cli import units
from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, fail, ok, warn

EVENTLOG = "condor_joblens.eventlog"
"""Its module, by which its process is known."""

IN_DAEMON_LIST = {"JOBLENS_EVENTLOG": EVENTLOG}

NEEDED = ("GlobalJobId", "Owner")
"""Of EVENT_LOG_JOB_AD_INFORMATION_ATTRS: without these an event is nobody's."""

WAIT = 3.0
"""Seconds after which something more is told, if the hub takes it: joblens-eventlog looks once a second."""

_CURSOR = "cursor"
"""Of eventlog/cursor.py, in JOBLENS_EVENT_LOG_DIR."""

_DOCS = 'docs/hub.md, "From access points"'
_LOG = "see JobLensEventLogLog in condor_config_val LOG"


def event_log(node: CheckedNode) -> Iterator[Finding]:
    """The schedd writes what is read of the log, joblens-eventlog runs, and the hub takes it."""
    if "JOBLENS_EVENTLOG" not in node.words("DAEMON_LIST"):
        yield ok("not in DAEMON_LIST, so not wanted")
        return
    wrong = list(_settings(node))
    yield from wrong
    pid = node.runs(EVENTLOG)
    if pid is None:
        what = "joblens-eventlog does not run, or this user may not see it: the hub knows of no job that waits"
        yield warn(what, f"{_LOG}, then joblens restart")
    elif not wrong:
        yield _progress(node, pid)


def _settings(node: CheckedNode) -> Iterator[Finding]:
    if not node.macro("EVENT_LOG"):
        yield fail("EVENT_LOG is not set: this access point writes no event log", _DOCS)
        return
    if "JSON" not in node.words("EVENT_LOG_FORMAT_OPTIONS"):
        yield fail("EVENT_LOG_FORMAT_OPTIONS has no JSON", "write JSON, UTC, SUB_SECOND, then condor_reconfig")
    told = node.words("EVENT_LOG_JOB_AD_INFORMATION_ATTRS")
    missing = [name for name in NEEDED if name.upper() not in told]
    if missing:
        what = (
            f"EVENT_LOG_JOB_AD_INFORMATION_ATTRS lacks {' and '.join(missing)}: nobody knows whose jobs events are of"
        )
        yield fail(what, "add it, then condor_reconfig")
    if not node.macro("JOBLENS_SINK_HUB_URL"):
        yield fail("JOBLENS_SINK_HUB_URL is not set", f"name the hub: {_DOCS}")
    token = node.macro("JOBLENS_SINK_HUB_TOKEN_FILE")
    if token and not node.exists(token):
        yield fail(f"{token} is not there", f"put this machine's token there: {_DOCS}")


def _progress(node: CheckedNode, pid: int) -> Finding:
    """How far the hub has the log. Raises PermissionError where the cursor may not be read."""
    before = _place(node)
    behind = _behind(node, before)
    if behind and node.live:
        time.sleep(WAIT)
        after = _place(node)
        if after != before:  # it goes on
            return ok(f"runs as process {pid}, and tells the hub what is new in {node.macro('EVENT_LOG')}")
    if behind:
        lack = f"the hub lacks the last {units.volume(behind)} of the event log"
        what = f"joblens-eventlog runs as process {pid}, but {lack}"
        return warn(what, _LOG)
    return ok(f"runs as process {pid}, and the hub has all of {node.macro('EVENT_LOG')}")


def _place(node: CheckedNode) -> tuple[int, int]:
    """The inode of the file that the hub has up to a place, and that place in bytes. Raises PermissionError."""
    try:
        said = json.loads(node.read(os.path.join(node.config.event_log_dir, _CURSOR)) or "{}")
        return int(said["inode"]), int(said["offset"])
    except (ValueError, KeyError, TypeError):
        return 0, 0  # it begins anew then, too


def _behind(node: CheckedNode, place: tuple[int, int]) -> int:
    """Bytes of the newest file that were not told; 0 if it has none, or is not there yet."""
    try:
        found = os.stat(node.path(node.macro("EVENT_LOG")))
    except FileNotFoundError:
        return 0
    return found.st_size - place[1] if found.st_ino == place[0] else found.st_size
