"""From afar: whether joblens-relay and joblens-door run here and do their part, and whether entries can hold."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator

from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, fail, ok, warn
from condor_joblens.common.errors import printable
from condor_joblens.control.keys import key_in

RELAY, DOOR = "condor_joblens.relay", "condor_joblens.accesspoint.door"
"""Their modules, by which their processes are known."""

IN_DAEMON_LIST = {"JOBLENS_RELAY": RELAY, "JOBLENS_DOOR": DOOR}

LEVELS = "levels"
"""The value of JOBLENS_HUB_MAY with which entries hold."""

_DOCS, _ENTRIES = 'docs/admin.md, "Commands from afar"', 'docs/admin.md, "Entries"'
_NEWEST = 20_000
"""Bytes of a log's end in which the last word about the connection stands, if there is one."""

_CONNECTION = re.compile(r"(?:no connection|connected) to .*")


def relay(node: CheckedNode) -> Iterator[Finding]:
    """joblens-relay carries commands, on nodes and access points alike."""
    if "JOBLENS_RELAY" not in node.words("DAEMON_LIST"):
        if _is_execute_node(node) and node.config.remote_commands:
            why = "JOBLENS_REMOTE_COMMANDS is true, and JOBLENS_RELAY is not in DAEMON_LIST: nobody brings a command"
            yield warn(why, _DOCS)
        else:
            yield ok("not in DAEMON_LIST, so not wanted")
        return
    yield from _relay_settings(node)
    pid = node.runs(RELAY)
    if pid is None:
        what = "joblens-relay does not run, or this user may not see it: no command comes from afar, or goes there"
        yield warn(what, "see JobLensRelayLog in condor_config_val LOG, then joblens restart")
    else:
        yield _connection(node, pid)


def _relay_settings(node: CheckedNode) -> Iterator[Finding]:
    config = node.config
    if not config.relay_url:
        yield fail("JOBLENS_RELAY_URL is not set", "name the site's relay server: wss://HOST/")
    by_certificate = bool(config.relay_certificate_file)
    secret = (config.relay_key_file or config.relay_certificate_file) if by_certificate else config.relay_token_file
    if not node.exists(secret):
        what = "the key of this machine's certificate" if by_certificate else "this machine's token"
        yield fail(f"{secret} is not there", f"put {what} there: {_DOCS}")
    elif node.mode(secret) & 0o077:
        yield fail(f"{secret} is not its owner's alone", f"chmod 600 {secret}")
    if _is_access_point(node) and not config.relay_socket:
        what = "this is an access point, and JOBLENS_RELAY_SOCKET is not set: its users can't ask from here"
        yield warn(what, f"set it to /run/joblens-relay.sock, then joblens restart: {_DOCS}")
    if _is_execute_node(node) and not config.remote_commands and not config.hub_key:
        what = "this is an execute node, and JOBLENS_REMOTE_COMMANDS is false: joblensd does nothing from afar"
        yield warn(what, "set it to true, then joblens restart")
    if _is_execute_node(node) and config.remote_commands and "JOBLENSKEY" not in node.words("STARTD_JOB_ATTRS"):
        what = "JobLensKey is not in STARTD_JOB_ATTRS: joblensd knows no access point's key"
        yield fail(what, "add it on the execute node, then condor_reconfig")


def _connection(node: CheckedNode, pid: int) -> Finding:
    """What its log says last of the connection."""
    try:
        said = _CONNECTION.findall(node.read(_log(node, "RELAY", "JobLensRelayLog"), _NEWEST) or "")
    except PermissionError:
        said = []
    if said and said[-1].startswith("no"):
        return warn(f"joblens-relay runs as process {pid}, but: {printable(said[-1], 300)}", "see JobLensRelayLog")
    both = _is_execute_node(node) and _is_access_point(node)
    roles = "; its token has to be one of the role `both`" if both else ""
    return ok(f"runs as process {pid}{', ' + printable(said[-1], 200) if said else ''}{roles}")


def entries(node: CheckedNode) -> Iterator[Finding]:
    """What the relay server may say here by its own key (JOBLENS_HUB_*), and whether that reaches joblensd."""
    config = node.config
    if not config.hub_key:
        if config.hub_may == LEVELS:
            yield warn("JOBLENS_HUB_MAY is levels, and JOBLENS_HUB_KEY is not set: no entry is taken", _ENTRIES)
        else:
            yield ok("JOBLENS_HUB_KEY is not set, so not wanted")
        return
    if not key_in(config.hub_key):
        what = "JOBLENS_HUB_KEY is no key: no entry is taken, and no number told"
        yield fail(what, "write what `joblens control key` says on the relay server's machine, then joblens restart")
        return
    if "JOBLENS_RELAY" not in node.words("DAEMON_LIST"):
        yield warn("JOBLENS_HUB_KEY is set, and JOBLENS_RELAY is not in DAEMON_LIST: nobody brings entries", _ENTRIES)
    if node.live and importlib.util.find_spec("cryptography") is None:
        yield fail("no entry is taken: the Python package cryptography is missing", "make install EXTRAS=relay")
    may = {"none": "may say nothing", "numbers": "may ask for numbers of jobs, and take no part in levels"}
    if config.hub_may != LEVELS:
        yield ok(f"the relay server {may[config.hub_may]} (JOBLENS_HUB_MAY = {config.hub_may})")
        return
    if config.hub_max_level > config.max_level:
        highest, most = config.max_level.word, config.hub_max_level.word
        what = f"JOBLENS_HUB_MAX_LEVEL is {most}, and JOBLENS_MAX_LEVEL {highest}: entries raise to {highest} at most"
        yield warn(what, f"set JOBLENS_HUB_MAX_LEVEL to {highest}, or JOBLENS_MAX_LEVEL to {most}")
    else:
        yield ok(f"entries of the relay server hold; they raise jobs to {config.hub_max_level.word} at most")


def door(node: CheckedNode) -> Iterator[Finding]:
    """joblens-door vouches for users, on an access point; its key goes with each job that is submitted."""
    if "JOBLENS_DOOR" not in node.words("DAEMON_LIST"):
        if node.config.relay_socket:
            what = "JOBLENS_RELAY_SOCKET is set, and JOBLENS_DOOR is not in DAEMON_LIST: nobody vouches for users"
            yield warn(what, _DOCS)
        else:
            yield ok("not in DAEMON_LIST, so not wanted")
        return
    if "JOBLENSKEY" not in node.words("JOB_TRANSFORM_NAMES"):
        what = "JobLensKey is not in JOB_TRANSFORM_NAMES: jobs leave without the key, and their nodes refuse"
        yield fail(what, f"let joblens-door --config write its configuration: {_DOCS}")
    if "JOBLENSKEY" not in node.words("IMMUTABLE_JOB_ATTRS"):
        yield warn("JobLensKey is not in IMMUTABLE_JOB_ATTRS: users can change it in their jobs", "add it there")
    if node.config.door_afar_socket and "JOBLENS_RELAY" not in node.words("DAEMON_LIST"):
        what = "JOBLENS_DOOR_AFAR_SOCKET is set, and JOBLENS_RELAY is not in DAEMON_LIST: nobody brings requests there"
        yield warn(what, _DOCS)
    pid, path = node.runs(DOOR), node.config.door_socket
    if pid is None:
        what = "joblens-door does not run, or this user may not see it: nobody vouches for users"
        yield warn(what, "see JobLensDoorLog in condor_config_val LOG, then joblens restart")
    elif not node.exists(path):
        yield fail(f"{path} is not there, where users ask", "see JobLensDoorLog in condor_config_val LOG")
    elif node.config.door_afar_socket and not node.exists(node.config.door_afar_socket):
        what = f"{node.config.door_afar_socket} is not there: users who are elsewhere can't ask"
        yield fail(what, "JobLensDoorLog says why; after a change of the knob, joblens restart")
    else:
        yield ok(f"runs as process {pid}, and users ask it at {path}")


def _log(node: CheckedNode, daemon: str, name: str) -> str:
    return node.macro(f"JOBLENS_{daemon}_LOG") or os.path.join(node.macro("LOG", "/var/log/condor"), name)


def _is_execute_node(node: CheckedNode) -> bool:
    return "STARTD" in node.words("DAEMON_LIST")


def _is_access_point(node: CheckedNode) -> bool:
    return "SCHEDD" in node.words("DAEMON_LIST")
