"""Whether each sink that JOBLENS_SINKS names is set up rightly, and its backend takes what it is given."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, fail, ok, warn
from condor_joblens.common import condor_config
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.privilege import become, service_ids

if TYPE_CHECKING:
    from condor_joblens.sinks.registry import SinkConfig


def sinks(node: CheckedNode) -> Iterator[Finding]:
    """One or more lines a sink."""
    if "JOBLENS_EXPORT" not in node.words("DAEMON_LIST"):
        yield ok("joblens-export is not in DAEMON_LIST, so none is wanted")
        return
    from condor_joblens.sinks.registry import configure  # brings numpy along

    configs, problems = configure(node.config.sinks, condor_config.values(node.macros))
    for problem in problems:
        text, _, remedy = problem.rpartition(": ")
        yield fail(text or problem, remedy)
    for found in configs:
        yield from _tried(found) if node.live else [ok(f"{found.name} is set up")]


def _tried(found: SinkConfig) -> list[Finding]:
    """By a process that is joblens-export's user: root could read files that it may not."""
    try:
        ids = service_ids()
    except JobLensError as error:
        text, _, remedy = str(error).rpartition(": ")
        return [fail(f"{found.name}: {text}", remedy)]
    as_exporter = functools.partial(become, *ids) if ids else None
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), as_exporter) as process:
        return process.submit(_findings, found).result()


def _findings(found: SinkConfig) -> list[Finding]:
    return list(_checked(found))


def _checked(found: SinkConfig) -> Iterator[Finding]:
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
