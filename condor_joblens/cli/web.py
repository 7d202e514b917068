"""`joblens job ID --web`: where the site's hub has the job's page."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from urllib.parse import quote, urlencode

from condor_joblens.cli.runs import Run
from condor_joblens.common.condor_config import read_macros
from condor_joblens.common.config_parser import parse
from condor_joblens.common.errors import JobLensError

_SECONDS = 10.0
"""For a desktop to open an address."""


def run(job: Run) -> int:
    """Prints the address, and opens it if this is a desktop; exit code 0. Raises JobLensError."""
    pages = parse(read_macros("JOBLENS_HUB_PAGES"))[0].hub_pages
    if not pages:
        raise JobLensError(
            "JOBLENS_HUB_PAGES is not set here: an administrator says there where the pages of the site's hub are"
        )
    there = address(pages, job)
    print(there)
    program = shutil.which("xdg-open")
    if program and os.geteuid() and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # who can't open it has the address
            subprocess.run(
                [program, there], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=_SECONDS, check=False,
            )  # fmt: skip
    return 0


def address(pages: str, job: Run) -> str:
    """Of the run's page; of one whose name is not known, of the list of jobs with its id."""
    name = str(job.facts.get("run", ""))
    if name:
        return f"{pages}/job/{quote(name, safe='')}"
    return f"{pages}/jobs?{urlencode({'state': 'all', 'q': job.fact('job_id')})}"
