"""The configuration snippets, as HTCondor's own parser reads them beside a site's files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from condor_joblens.common import config_parser
from condor_joblens.model import metrics

FOLDER = Path(__file__).parents[2] / "condor_config.d"
SNIPPETS = ("50-joblens-ep.conf", "50-joblens-ap.conf")
FORMATS = sorted((FOLDER / "print_formats").iterdir())

READ = """
import htcondor2, json, sys
htcondor2.set_subsystem("TOOL")
print(json.dumps({name: htcondor2.param.get(name) for name in sys.argv[1:]}))
"""

STOCK = """
LOG = /var/log/condor
LIBEXEC = /usr/libexec/condor
EXECUTE = /var/lib/condor/execute
DAEMON_LIST = MASTER STARTD
"""


class Site:
    """A machine's configuration: a main file, the site's files, and our snippets among them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "config.d"
        self.folder.mkdir()
        self.main = folder / "condor_config"
        self.main.write_text(f"{STOCK}LOCAL_CONFIG_DIR = {self.folder}\n")
        for name in SNIPPETS:
            (self.folder / name).write_text((FOLDER / name).read_text())

    def add(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def read(self, *names: str) -> dict[str, str]:
        environment = {**os.environ, "CONDOR_CONFIG": str(self.main)}
        done = subprocess.run(
            [sys.executable, "-c", READ, *names], env=environment, capture_output=True, text=True, check=True
        )
        found: dict[str, str] = json.loads(done.stdout)
        return found


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_what_they_set(site: Site) -> None:
    found = site.read(
        "DAEMON_LIST",
        "JOBLENSD",
        "JOBLENSD_LOG",
        "USER_JOB_WRAPPER",
        "STARTD_CRON_JOBLIST",
        "STARTD_JOB_ATTRS",
        "STARTD_CRON_JOBLENS_ARGS",
        "STARTER.STARTD_CRON_JOBLENS_METRICS",
        "STARTD_CRON_JOBLENS_METRICS",
        "IMMUTABLE_JOB_ATTRS",
        "PROTECTED_JOB_ATTRS",
    )
    assert found["DAEMON_LIST"].split() == ["MASTER", "STARTD", "JOBLENSD", "JOBLENS_EXPORT"]
    assert found["JOBLENSD"] == "/usr/libexec/condor/joblensd"
    assert found["JOBLENSD_LOG"] == "/var/log/condor/JobLensdLog"
    assert found["USER_JOB_WRAPPER"] == "/usr/libexec/condor/joblens_wrapper"
    assert found["STARTD_CRON_JOBLIST"].split() == ["JOBLENS"]
    assert found["STARTD_JOB_ATTRS"].split()[-2:] == ["CondorScratchDir", "NumShadowStarts"], "nothing that users write"
    assert found["STARTD_CRON_JOBLENS_ARGS"] == "/var/lib/condor/execute"
    assert found["STARTER.STARTD_CRON_JOBLENS_METRICS"] == "SUM:JobLens"
    assert not found["STARTD_CRON_JOBLENS_METRICS"], "the startd would look for a number"
    assert found["IMMUTABLE_JOB_ATTRS"].split() == ["JobLensLevel"]
    assert not found["PROTECTED_JOB_ATTRS"], "finished jobs would never leave the queue"


def test_first_numbers_within_thirty_seconds(site: Site) -> None:
    found = site.read("SHADOW_QUEUE_UPDATE_INTERVAL")
    first_starter_update = 8  # STARTER_INITIAL_UPDATE_INTERVAL, HTCondor's own
    assert first_starter_update + int(found["SHADOW_QUEUE_UPDATE_INTERVAL"]) <= 30


def test_a_thousand_running_jobs_cost_a_schedd_one_percent_of_a_core(site: Site) -> None:
    found = site.read("STARTER_UPDATE_INTERVAL", "SHADOW_QUEUE_UPDATE_INTERVAL")
    # a shadow commits once for each of its starter's updates, at its next look: 0.7 ms of the schedd's
    assert 1000 / int(found["STARTER_UPDATE_INTERVAL"]) * 0.7e-3 <= 0.01
    assert int(found["SHADOW_QUEUE_UPDATE_INTERVAL"]) <= int(found["STARTER_UPDATE_INTERVAL"])


@pytest.mark.parametrize("name", ["20-site.conf", "90-site.conf"])
@pytest.mark.parametrize(
    "knob",
    ["STARTER_UPDATE_INTERVAL", "SHADOW_QUEUE_UPDATE_INTERVAL", "JOBLENSD_LOG", "JOBLENS_EXPORT_LOG", "JOBLENS_PERIOD"],
)
def test_a_sites_own_setting_wins(site: Site, name: str, knob: str) -> None:
    site.add(name, f"{knob} = 7\n")
    assert site.read(knob)[knob] == "7"


def test_a_sites_own_lists_are_kept(site: Site) -> None:
    site.add(
        "20-site.conf",
        "DAEMON_LIST = MASTER STARTD SCHEDD\nSTARTD_CRON_JOBLIST = GPUS\n"
        "STARTD_JOB_ATTRS = ImageSize\nIMMUTABLE_JOB_ATTRS = Project\n",
    )
    found = site.read("DAEMON_LIST", "STARTD_CRON_JOBLIST", "STARTD_JOB_ATTRS", "IMMUTABLE_JOB_ATTRS")
    assert found["DAEMON_LIST"].split() == ["MASTER", "STARTD", "SCHEDD", "JOBLENSD", "JOBLENS_EXPORT"]
    assert found["STARTD_CRON_JOBLIST"].split() == ["GPUS", "JOBLENS"]
    assert found["STARTD_JOB_ATTRS"].split()[0] == "ImageSize"
    assert found["IMMUTABLE_JOB_ATTRS"].split() == ["Project", "JobLensLevel"]


@pytest.mark.parametrize("name", SNIPPETS)
def test_every_setting_says_why(name: str) -> None:
    """Each block of settings, between blank lines, begins with a comment."""
    for block in re.split(r"\n\s*\n", (FOLDER / name).read_text()):
        assert block.lstrip().startswith("#"), block


def test_our_own_knobs_in_them_are_known() -> None:
    text = "".join((FOLDER / name).read_text() for name in SNIPPETS)
    macros = dict(re.findall(r"^\s*(JOBLENS\w*) = (.*)$", text, re.MULTILINE))
    assert macros and config_parser.parse(macros)[1] == []


@pytest.mark.parametrize("path", FORMATS, ids=lambda path: path.name)
def test_print_formats_name_what_there_is(path: Path) -> None:
    text = path.read_text()
    named = re.findall(r"JobLensUsage\.([\w.]+)", text)
    metric_names = {metric.path for metric in metrics.METRICS}
    field_names = {field.path for field in metrics.FIELDS}
    assert named and set(named) <= metric_names | field_names
    assert not re.findall(r"(?<!MY\.)JobLensUsage\.", text), "the attribute would not be fetched"
