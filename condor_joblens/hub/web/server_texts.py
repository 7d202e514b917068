"""Loads of file servers in words."""

from __future__ import annotations

from typing import Any

from condor_joblens.hub.web.addresses import jobs_url, server_url
from condor_joblens.hub.web.health import size


def wait_text(seconds: float | None) -> str:
    """0.31 ms, 12 ms, 4.2 s; a dash where nothing was asked."""
    if seconds is None:
        return "–"
    return f"{seconds:.2g} s" if seconds >= 1 else f"{1000 * seconds:.2g} ms"


def dressed_load(row: dict[str, Any]) -> dict[str, Any]:
    """A load with text for what a template shows; a dash where it is not known."""
    return {
        **row,
        "requests_text": number_text(row["requests_per_second"]),
        "bytes_text": "–" if row["bytes_per_second"] is None else size(row["bytes_per_second"]),
        "errors_text": number_text(None if row["errors_per_second"] is None else 60 * row["errors_per_second"]),
        "waiting_text": number_text(row["waiting"]),
        "wait": wait_text(row["wait_seconds"]),
    }


def dressed_server(row: dict[str, Any]) -> dict[str, Any]:
    """Of a table of servers."""
    return {**dressed_load(row), "url": server_url(row["name"]), "runs_url": jobs_url(server=row["name"])}


def number_text(value: float | None) -> str:
    """1200, 12.3, 0.31."""
    if value is None:
        return "–"
    if 0 < value < 0.01:
        return "< 0.01"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
