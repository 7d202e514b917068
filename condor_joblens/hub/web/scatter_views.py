"""The page of two metrics against each other, of the jobs that the page of jobs chooses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from condor_joblens.hub.web import picked
from condor_joblens.hub.web.addresses import job_url
from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.reads import STATES, Reader
from condor_joblens.hub.web.scatter import Question, as_rows, scatter
from condor_joblens.hub.web.scatter_picture import picture
from condor_joblens.hub.web.views import Jobs, View, asked_jobs, chips

X, Y = "Cpu.RecentCores", "Memory.ResidentBytes"
"""Where an address names none."""


@dataclass(frozen=True)
class _Asked:
    """What an address asks for: two metrics, and the jobs."""

    x: str
    y: str
    jobs: Jobs

    def address(self) -> str:
        """Its query."""
        return f"{urlencode({'x': self.x, 'y': self.y})}&{self.jobs.address()}"

    def find(self, reader: Reader) -> dict[str, Any]:
        """Raises JobLensError."""
        return scatter(reader, Question(self.x, self.y, self.jobs.words, self.jobs.state, self.jobs.exact))


def _asked(asked: Any) -> _Asked:
    """Raises WrongRequest."""
    jobs = asked_jobs(asked)
    if jobs.state not in STATES:
        raise WrongRequest(f"jobs in a queue have no metrics: the state is one of {', '.join(STATES)}")
    x, y = (picked.metric(asked.get(name) or usual).path for name, usual in (("x", X), ("y", Y)))
    return _Asked(x, y, replace(jobs, page=0))


def _dress(asked: _Asked, found: dict[str, Any]) -> dict[str, Any]:
    by_run = {row["Run"]: row for row in found["points"]}
    far = [by_run[run] for run in found["far"]]
    return {
        "asked": asked.jobs,
        "states": STATES,
        **{"x": asked.x, "y": asked.y, "picker": picked.picker()},
        **{"x_help": picked.BY_PATH[asked.x].help, "y_help": picked.BY_PATH[asked.y].help},
        **{"count": found["count"], "drawn": len(found["points"])},
        "far": [
            {
                **{"job": row["JobId"], "url": job_url(row["Run"])},
                **{axis: picked.text(found[axis], row[axis]) for axis in ("x", "y")},
            }
            for row in far
        ],
        "picture": picture(found) if found["points"] else None,
        "chips": [(words, f"{urlencode({'x': asked.x, 'y': asked.y})}&{link}") for words, link in chips(asked.jobs)],
        "here": asked.address(),
        "table": asked.jobs.address(columns=tuple(dict.fromkeys((asked.x, asked.y))), sort=f"-{asked.y}"),
        "turned": replace(asked, x=asked.y, y=asked.x).address(),
    }


SCATTER = View(
    "scatter",
    _asked,
    lambda reader, asked: asked.find(reader),
    _dress,
    table=lambda reader, asked: list(as_rows(asked.find(reader))),
    backs_off=True,
    is_of_live=True,
)
