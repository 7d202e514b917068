"""What `make install` says of the job wrapper that HTCondor uses from then on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
CONFIG_VAL = """#!/bin/sh
[ -z "{value}" ] && {{ echo "Not defined: USER_JOB_WRAPPER" >&2; exit 1; }}
case "$*" in
*-v*) printf '%s\\n' 'USER_JOB_WRAPPER = {value}' ' # at: {source}' ' # raw: USER_JOB_WRAPPER = {value}' ;;
*USER_JOB_WRAPPER*) echo '{value}' ;;
esac
"""


def installed(folder: Path, wrapper: str, chained: str = "", role: str = "ep") -> list[str]:
    """What is printed about wrappers, if HTCondor then says that `wrapper` is in force."""
    for name in ("bin", "site"):
        (folder / name).mkdir()
    (folder / "libexec").mkdir()
    (folder / "libexec" / "joblens_wrapper").touch()
    if chained:
        (folder / "site" / "chained_wrapper").write_text(chained + "\n")
    program = folder / "bin" / "condor_config_val"
    source = "/etc/condor/config.d/99-site.conf, line 3"
    program.write_text(CONFIG_VAL.format(value=wrapper.replace("OURS", str(folder / "libexec")), source=source))
    program.chmod(0o755)
    places = [f"CONFIGDIR={folder}/config.d", f"LIBEXEC={folder}/libexec", f"site={folder}/site", f"ROLES={role}"]
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "MAKEFLAGS": ""}
    made = subprocess.run(
        ["make", "-s", "install-config", *places],
        cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert made.stderr == ""
    lines = made.stdout.replace(str(folder), "").splitlines()
    return [line for line in lines if not line.startswith("The configuration ")]


def test_a_file_that_overrides_our_wrapper_is_named_with_the_remedy(tmp_path: Path) -> None:
    assert installed(tmp_path, "/usr/local/bin/site_wrapper", "/usr/local/bin/site_wrapper") == [
        "USER_JOB_WRAPPER = /usr/local/bin/site_wrapper (/etc/condor/config.d/99-site.conf, line 3) overrides "
        "50-joblens-ep.conf: take that line away, so that ours runs it, then condor_reconfig"
    ]


def test_a_wrapper_that_ours_runs_goes_on(tmp_path: Path) -> None:
    assert installed(tmp_path, "OURS/joblens_wrapper", "/usr/local/bin/site_wrapper") == [
        "The site's job wrapper /usr/local/bin/site_wrapper goes on: ours runs it (noted in /site/chained_wrapper)"
    ]


@pytest.mark.parametrize(
    ("wrapper", "role"),
    [("OURS/joblens_wrapper", "ep"), ("", "ep"), ("/usr/local/bin/site_wrapper", "ap")],
    ids=["ours", "none", "no execute node"],
)
def test_else_nothing_is_said(tmp_path: Path, wrapper: str, role: str) -> None:
    assert installed(tmp_path, wrapper, role=role) == []


def found_by_uninstall() -> set[int]:
    """The processes for whose end `make uninstall` waits."""
    rule = "ours: ; @$(our_processes) || true"
    environment = {**os.environ, "MAKEFLAGS": ""}
    made = subprocess.run(
        ["make", "-s", "--eval", rule, "ours"],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return {int(line.split()[0]) for line in made.stdout.splitlines()}


def test_uninstall_takes_no_process_of_a_user_for_ours() -> None:
    """Whatever it is called: by name and by user."""
    named = [sys.executable, "-c", "input()", "-m", "condor_joblens.agent"]
    stranger, is_root = 12345, os.geteuid() == 0
    with (
        subprocess.Popen(named, stdin=subprocess.PIPE, **({"user": stranger} if is_root else {})) as theirs,
        subprocess.Popen(named, stdin=subprocess.PIPE) as own,
    ):
        try:
            found = found_by_uninstall()
        finally:
            theirs.communicate()
            own.communicate()
    assert theirs.pid not in found
    assert (own.pid in found) == is_root
