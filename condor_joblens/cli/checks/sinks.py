"""Whether each sink that JOBLENS_SINKS names is set up rightly, and its backend takes what it is given."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, State, fail, ok, warn
from condor_joblens.cli.checks.htcondor import where_set
from condor_joblens.common import condor_config, readiness
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.listening import split
from condor_joblens.common.page_address import MACRO, page_address
from condor_joblens.common.privilege import become, service_ids

if TYPE_CHECKING:
    from condor_joblens.sinks.registry import SinkConfig

CERTIFICATE = "JOBLENS_SINK_PROMETHEUS_CERTIFICATE"

SECONDS = 60.0
"""How long a sink may take to say what it finds."""

MAX_BYTES = 1 << 20
"""And how much it may say."""

MAX_MEMORY_BYTES = 512 << 20
"""Of data, for the same reason: a hostile server's answer can be long, and its sink's library may have no bound."""

LONGEST = 1000
"""Characters of one text."""


def sinks(node: CheckedNode) -> Iterator[Finding]:
    """One or more lines a sink."""
    if "JOBLENS_EXPORT" not in node.words("DAEMON_LIST"):
        yield ok("joblens-export is not in DAEMON_LIST, so none is wanted")
        return
    from condor_joblens.sinks.registry import configure, wrong_of_unwanted  # brings numpy along

    macros = condor_config.values(node.macros)
    configs, problems = configure(node.config.sinks, macros)
    for problem in problems:
        text, _, remedy = problem.rpartition(": ")
        yield fail((text or problem) + where_set(node, problem), remedy)
    for problem in wrong_of_unwanted(node.config.sinks, macros):
        text, _, remedy = problem.rpartition(": ")
        yield warn(f"{text or problem}{where_set(node, problem)}; JOBLENS_SINKS does not name that sink", remedy)
    for found in configs:
        yield from _tried(found) if node.live else [ok(f"{found.name} is set up")]


def open_page(node: CheckedNode) -> Iterator[Finding]:
    """Whoever can reach the page sees the names of all jobs and users."""
    if "JOBLENS_EXPORT" not in node.words("DAEMON_LIST"):
        return
    macros = condor_config.values(node.macros)
    address = page_address(macros)
    if not address:
        return
    host, _ = split(address)
    secured = bool(macros.get(CERTIFICATE, "").strip())
    if _is_local(host):
        yield ok(f"{address}: for this machine alone")
    elif secured:
        yield ok(f"{address}: open to the network, by TLS")
    else:
        where = where_set(node, MACRO)
        yield warn(
            f"{address}{where} is open to the network without TLS: whoever reaches it sees all jobs' numbers",
            f"set {CERTIFICATE} and JOBLENS_SINK_PROMETHEUS_KEY, or keep it on 127.0.0.1: docs/sinks/prometheus.md",
        )


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _tried(found: SinkConfig) -> list[Finding]:
    """By a process that is joblens-export's user: root could read files that it may not."""
    try:
        ids = service_ids()
    except JobLensError as error:
        text, _, remedy = str(error).rpartition(": ")
        return [fail(f"{found.name}: {text}", remedy)]
    answer, child_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answer)
        _answer(found, ids, child_end)
    os.close(child_end)
    try:
        said = _read_all(answer)
    finally:
        os.close(answer)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return _findings(found.name, said)


def _answer(found: SinkConfig, ids: tuple[int, int] | None, to: int) -> NoReturn:
    """In the child: the findings as JSON."""
    try:
        if ids:
            become(*ids)
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        told = [[finding.state.value, finding.text, finding.remedy] for finding in _asked(found)]
        with os.fdopen(to, "w", encoding="utf-8") as answer:
            json.dump(told, answer)
    finally:
        os._exit(0)


def _read_all(descriptor: int) -> bytes:
    """What comes until its end, MAX_BYTES and SECONDS at most."""
    said, until = b"", time.monotonic() + SECONDS
    while len(said) <= MAX_BYTES:
        rest = until - time.monotonic()
        if rest <= 0 or not readiness.readable([descriptor], rest):
            break
        more = os.read(descriptor, 1 << 16)
        if not more:
            break
        said += more
    return said


def _findings(name: str, said: bytes) -> list[Finding]:
    """What the child has told. It ran a plug-in's code, so nothing of it is believed but that it is text."""
    try:
        told = json.loads(said)
        return [
            Finding(State(state), printable(str(text), LONGEST), printable(str(remedy), LONGEST))
            for state, text, remedy in told
        ]
    except (ValueError, TypeError, RecursionError):
        return [
            fail(
                f"{name} can't be tried: it does not answer within {SECONDS:g} s, or not as it should", "ask its author"
            )
        ]


def _asked(found: SinkConfig) -> Iterator[Finding]:
    from condor_joblens.model.metrics import empty_rows
    from condor_joblens.sinks import SinkContext

    def nothing(_: str) -> None:
        pass

    context = SinkContext(nothing, lambda: (empty_rows(0), 0.0), tuple, os.uname().nodename)
    try:
        sink = found.sink(found.settings, context)
        try:
            diagnoses = list(sink.check())
        finally:
            with contextlib.suppress(Exception):
                sink.close(1.0)
    except JobLensError as error:
        text, _, remedy = str(error).rpartition(": ")
        yield fail(f"{found.name}: {text or remedy}", remedy)
        return
    except Exception as error:  # a plug-in's code
        yield fail(
            f"{found.name} can't be tried: {printable(f'{type(error).__name__}: {error}', 200)}", "ask its author"
        )
        return
    for diagnosis in diagnoses:
        text = f"{found.name}: {diagnosis.text}"
        yield ok(text) if diagnosis.ok else warn(text, diagnosis.remedy)
    if not diagnoses:
        yield ok(f"{found.name} is set up")
