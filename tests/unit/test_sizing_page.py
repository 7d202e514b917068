"""The table of a job's series and bytes in docs/sizing.md is what the code makes today."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "benchmarks")]

import job_sizes  # noqa: E402

PAGE = (CHECKOUT / "docs" / "sizing.md").read_text()
LEVELS = ("basic", "io")
MADE = {
    "series on the Prometheus page": "series on the page",
    "bytes of a scrape": "the page",
    "… compressed with those of 199 others": "the page, gzip",
    "bytes of a sample as JSON: in a file, and in what OpenSearch is sent": "a record",
    "… with `METRICS` of Cpu, memory, I/O and TCP bytes": "a record with METRICS of some",
    "bytes of a sample over OTLP": "OTLP",
    "… compressed by gzip": "OTLP, gzip",
}
STORED = {
    "… in the log of Kafka, compressed by gzip": "a sample in Kafka, gzip",
    "… in an index of OpenSearch, without replicas": "a sample in OpenSearch",
}
AN_HOUR = {
    "file": "bytes of a sample as JSON: in a file, and in what OpenSearch is sent",
    "Kafka, gzip": "… in the log of Kafka, compressed by gzip",
    "OpenSearch, without replicas": "… in an index of OpenSearch, without replicas",
    "OTLP, gzip": "… compressed by gzip",
}


def table(title: str) -> dict[str, list[float]]:
    """The rows of the table whose first column is called so."""
    found = re.search(rf"^\| {title} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    return {row[0]: [float(cell.replace(",", "")) for cell in row[1:]] for row in rows}


def test_the_page_has_a_job_as_the_sinks_make_it_now() -> None:
    rows = table("per job")
    assert set(rows) == {*MADE, *STORED}
    for place, level in enumerate(LEVELS):
        now = job_sizes.sizes(level == "io")
        for row, what in MADE.items():
            # a new metric or two need not be in the page at once, and compressors differ
            assert rows[row][place] == pytest.approx(now[what], rel=0.25), (
                f"{level}: {what}: run benchmarks/bench_sinks.py bytes stored, and correct docs/sizing.md"
            )


def test_the_page_has_what_the_benchmark_found_on_the_disks_of_servers() -> None:
    kept = json.loads((CHECKOUT / "benchmarks" / "results" / "sinks_stored.json").read_text())
    found = {line["what"]: line["value"] for line in kept["lines"]}
    rows = table("per job")
    for place, level in enumerate(LEVELS):
        for row, what in STORED.items():
            assert rows[row][place] == pytest.approx(found[f"{level}: {what}"], rel=0.01)


def test_an_hour_is_3600_samples() -> None:
    hours, rows = table("MB per job and hour"), table("per job")
    assert set(hours) == set(AN_HOUR)
    for name, row in AN_HOUR.items():
        assert hours[name] == pytest.approx([value * 3600 / 1e6 for value in rows[row]], rel=0.05)
