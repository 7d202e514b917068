"""The contracts in .importlinter refuse what they are for, and the privileged processes load no network library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LINTER = Path(sys.executable).parent / "lint-imports"
NETWORK = {"http.client", "http.server", "ssl", "urllib.request", "requests", "urllib3", "kafka", "prometheus_client"}

FORBIDDEN = [
    ("agent/wrong.py", "from condor_joblens.sinks import tls", "The privileged rooms never import the networked ones"),
    ("tracer/wrong.py", "import condor_joblens.export.spool", "The privileged rooms never import the networked ones"),
    ("sinks/wrong.py", "from condor_joblens.jobs import cgroups", "The networked rooms never import the privileged"),
    (
        "policy/wrong.py",
        "import http.client",
        "The sinks, the relay and the hub alone import a library that opens connections",
    ),
    ("export/handover.py", "from condor_joblens.sinks import tls", "What stays root reads nothing of the network"),
    ("export/handover.py", "import numpy", "What stays root reads nothing of the network"),
    (
        "export/wrong.py",
        "import requests",
        "The sinks, the relay and the hub alone import a library that opens connections",
    ),
    ("model/wrong.py", "from condor_joblens.common import errors", "Imports point down"),
    ("common/wrong.py", "from condor_joblens.shm import layout", "Imports point down"),
    ("publish/wrong.py", "from condor_joblens.agent import node", "Imports point down"),
    ("jobs/wrong.py", "from condor_joblens.cli import units", "Imports point down"),
    ("cli/wrong.py", "from condor_joblens.agent import node", "The command line imports policies"),
    (
        "cli/wrong.py",
        "import urllib.parse",
        "The sinks, the relay and the hub alone import a library that opens connections",
    ),
    ("newroom/__init__.py", "", "Imports point down"),
    ("control/__init__.py", "from condor_joblens.jobs import cgroups", "Imports point down"),
    (
        "commands/__init__.py",
        "import kafka",
        "The sinks, the relay and the hub alone import a library that opens connections",
    ),
    ("commands/__init__.py", "import condor_joblens.sinks", "The privileged rooms never import the networked ones"),
    (
        "hub/wrong.py",
        "from condor_joblens.relay import messages",
        "The hub imports the shared words, the analysis and the formats of artifacts alone",
    ),
    ("cli/wrong.py", "from condor_joblens.hub.store import client", "Nothing but the hub imports the hub"),
    ("relay/__init__.py", "import condor_joblens.jobs.cgroups", "The networked rooms never import the privileged"),
]

pytestmark = pytest.mark.skipif(not LINTER.exists(), reason="import-linter needs a newer Python than the nodes'")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    command = [str(LINTER), "--no-cache", "--config", str(REPOSITORY / ".importlinter")]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package's sources."""
    folder = tmp_path_factory.mktemp("contracts")
    only_python = shutil.ignore_patterns("__pycache__", "*.so", "*.o", "objects")
    shutil.copytree(REPOSITORY / "condor_joblens", folder / "condor_joblens", ignore=only_python)
    return folder


def test_the_package_keeps_them(package: Path) -> None:
    done = lint(package)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path, line, contract", FORBIDDEN, ids=[f"{path}: {line}" for path, line, _ in FORBIDDEN])
def test_an_import_that_breaks_one_is_refused(package: Path, path: str, line: str, contract: str) -> None:
    wrong = package / "condor_joblens" / path
    is_new = not wrong.parent.exists()
    wrong.parent.mkdir(exist_ok=True)
    before = wrong.read_text() if wrong.exists() else None
    wrong.write_text(line + "\n")
    try:
        done = lint(package)
        broken = [said for said in done.stdout.splitlines() if " BROKEN" in said]
        assert done.returncode != 0 and any(said.startswith(contract) for said in broken), done.stdout
    finally:
        if before is not None:
            wrong.write_text(before)
        elif is_new:
            shutil.rmtree(wrong.parent)
        else:
            wrong.unlink()


LOADED = """
import sys
import condor_joblens.agent.__main__ as agent
agent.loop.warm_up.end_of_a_job(agent.run_folder.Config())
print(*sys.modules)
"""


def test_joblensd_loads_no_library_that_opens_connections() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert not NETWORK & set(done.stdout.split())


def test_the_command_that_names_the_hubs_page_loads_none_either() -> None:
    ask = "import sys, condor_joblens.cli.web; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert not NETWORK & set(done.stdout.split())
