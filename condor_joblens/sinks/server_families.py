"""What reached file servers, on the Prometheus page: by job and server, and by server what is nobody's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from prometheus_client.core import CounterMetricFamily, Metric

from condor_joblens.common.errors import printable
from condor_joblens.model import classes
from condor_joblens.model.servers import NUMBERS, Scope

REST = "other"
"""The label of what is in no entry of its own."""

_LABELS = ("server", "filesystem")
_CLASSES = tuple(name.lower() for name in classes.SERVERS)
_HELP = {
    "requests": "requests that were answered",
    "sent_bytes": "bytes of requests",
    "received_bytes": "bytes of answers",
    "seconds": "time from request to answer, summed",
    "errors": "answers that are an error",
}


def of_jobs(jobs: Sequence[str], rows: np.ndarray, openmetrics: bool, escaped: Callable[[str], str]) -> Iterator[bytes]:
    """All families; `jobs` are the labels of each of `rows` (n,)."""
    listings = rows["servers"]
    places = np.argwhere((listings["scope"] != Scope.NONE) & (listings["requests"] > 0)).tolist()
    labels = [f"{{{jobs[row]},{_labels(listings[row, entry], escaped)}}}" for row, entry in places]
    for name in NUMBERS:
        family = f"joblens_job_by_server_{name}"
        exposed = f"{family}_total"
        help = f"{_HELP[name]}, of the servers of which the run asked most; {REST}: of all others, which may fall"
        yield f"# HELP {family if openmetrics else exposed} {help}\n".encode()
        yield f"# TYPE {family if openmetrics else exposed} counter\n".encode()
        values = listings[name][tuple(np.array(places).T)].tolist() if places else []
        lines = [f"{exposed}{its} {value:.15g}\n" for its, value in zip(labels, values) if value]
        yield "".join(lines).encode()


def _labels(entry: np.void, escaped: Callable[[str], str]) -> str:
    if entry["scope"] == Scope.REST:
        return f'server="{REST}"'
    name = escaped(printable(bytes(entry["name"]).decode("ascii", "replace"), 100))
    return f'server="{name}",filesystem="{_CLASSES[int(entry["class"])]}"'


def unattributed(facts: Mapping[str, Any]) -> Iterator[Metric]:
    """`facts` is what joblensd writes into its file `servers`; empty if nothing was asked for nobody."""
    entries = facts.get("Unattributed", ())
    for name in NUMBERS if entries else ():
        key = "".join(word.capitalize() for word in name.split("_"))
        family = CounterMetricFamily(
            f"joblens_server_unattributed_{name}",
            f"{_HELP[name]}, asked by no job or by an unknown one",
            labels=_LABELS,
        )
        for entry in entries:
            place = [printable(str(entry.get("Name", REST)), 64), str(entry.get("Class", "")).lower()]
            family.add_metric(place, float(entry[key]))
        yield family
