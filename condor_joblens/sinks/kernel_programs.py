"""What joblensd has in the kernel, for the page: its programs, what they cost, and what the kernel refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from condor_joblens.common.errors import printable

_LABELS = ("program", "level")


def read(path: str) -> dict[str, Any]:
    """What joblensd wrote to `path`; empty where it does not run, or not a version that writes it."""
    try:
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def families(kernel_programs: Mapping[str, Any]) -> Iterator[Metric]:
    """`kernel_programs` is what joblensd writes into its file `attached`; empty if there is none."""
    if not kernel_programs:
        return
    exact = GaugeMetricFamily("joblens_counts_in_kernel", "1 where numbers are counted in the kernel, 0 from /proc")
    exact.add_metric((), float(kernel_programs.get("Source") == "bpf"))
    yield exact
    there = GaugeMetricFamily("joblens_program_attached", "programs that are in the kernel now", labels=_LABELS)
    seconds = CounterMetricFamily(
        "joblens_program_run_seconds", "time that it has run, while kernel.bpf_stats_enabled was 1", labels=_LABELS
    )
    runs = CounterMetricFamily(
        "joblens_program_runs", "how often it has run, while kernel.bpf_stats_enabled was 1", labels=_LABELS
    )
    for program in kernel_programs.get("Programs", ()):
        labels = [printable(str(program[name]), 60) for name in ("Name", "Level")]
        there.add_metric(labels, 1)
        seconds.add_metric(labels, program["Seconds"])
        runs.add_metric(labels, program["Runs"])
    yield from (there, seconds, runs)
    missing = GaugeMetricFamily("joblens_part_missing", "parts that this kernel refused", labels=("part",))
    for name in kernel_programs.get("Missing", ()):
        missing.add_metric([printable(str(name), 60)], 1)
    yield missing
