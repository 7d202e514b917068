"""bash completes verbs, options, choices and jobs of `joblens`: by its own completion, with the script that ships."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from condor_joblens.cli import main

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = CHECKOUT / "docs" / "completion" / "joblens.bash"
ASKS = """
. "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
complete -p joblens | grep -q -- '-F _joblens ' || exit 9
_joblens joblens "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Programs that know two jobs: condor_q, which is asked first, and joblens."""
    for name, says in (("condor_q", "12.0\n12.1"), ("joblens", '   "JobId": "13.0",\n   "Owner": "x"')):
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}'\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def completed(folder: Path, *words: str, path: str = "") -> set[str]:
    """What the last one of these words could be."""
    environment = {"PATH": path or f"{folder}:{os.environ['PATH']}", "HOME": "/nonexistent"}
    command = ["bash", "--norc", "-c", ASKS, "bash", str(SCRIPT), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_verbs(folder: Path) -> None:
    assert completed(folder, "joblens", "") == {*main.COMMANDS, "--help", "--version"}
    assert completed(folder, "joblens", "no") == {"node", "notify"}


@pytest.mark.parametrize("verb", main.COMMANDS)
def test_every_verb_has_its_options(verb: str, folder: Path) -> None:
    assert {"--json", "--help"} <= completed(folder, "joblens", verb, "--")


def test_options_and_their_choices(folder: Path) -> None:
    assert completed(folder, "joblens", "ps", "12.0", "--v") == {"--via"}
    assert completed(folder, "joblens", "tail", "12.0", "--via", "") == {"condor_tail", "ssh"}
    assert completed(folder, "joblens", "top", "-s", "me") == {"memory"}
    assert {"add", "list", "end"} <= completed(folder, "joblens", "control", "")
    assert "--at-least" in completed(folder, "joblens", "control", "add", "--at")


@pytest.mark.parametrize("verb", ["ps", "tail", "kill", "notify", "level", "job", "hang", "flame"])
def test_jobs_come_first_and_once(verb: str, folder: Path) -> None:
    assert completed(folder, "joblens", verb, "") == {"12.0", "12.1"}
    assert completed(folder, "joblens", verb, "--run-dir", "/x", "12.1") == {"12.1"}
    assert completed(folder, "joblens", verb, "12.0", "") == set()


def test_without_a_queue_they_are_those_of_this_node(folder: Path) -> None:
    (folder / "condor_q").write_text("#!/bin/sh\necho no schedd >&2\nexit 1\n")
    assert completed(folder, "joblens", "ps", "") == {"13.0"}


def test_nothing_is_said_of_what_is_unknown(folder: Path) -> None:
    assert completed(folder, "joblens", "nonsense", "") == set()
    assert completed(folder, "joblens", "ps", "--run-dir", "") == set(), "a folder is for bash to complete"
    (folder / "condor_q").unlink()
    (folder / "joblens").unlink()
    assert completed(folder, "joblens", "ps", "", path=os.environ["PATH"]) == set()


def test_make_install_puts_it_where_bash_looks(tmp_path: Path) -> None:
    environment = {**os.environ, "MAKEFLAGS": ""}
    subprocess.run(["make", "-s", "install-files", f"DESTDIR={tmp_path}"], cwd=CHECKOUT, env=environment, check=True)
    installed = tmp_path / "usr/share/bash-completion/completions/joblens"
    assert installed.read_bytes() == SCRIPT.read_bytes()
