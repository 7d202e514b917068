"""How condor_config_val is asked, and what is understood of what it prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common import condor_commands, condor_config
from condor_joblens.common.errors import JobLensError

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40).map(str.strip)


def program(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "condor_config_val"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_the_whole_name_must_match_and_names_are_in_upper_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, 'echo "$@" >$0.asked; echo "# of node1"; echo "Log = /x = y"; echo "EMPTY = "', monkeypatch)
    assert condor_config.read_macros("LOG|EMPTY") == {"LOG": "/x = y", "EMPTY": ""}
    assert (tmp_path / "condor_config_val.asked").read_text() == "-dump -expanded ^(LOG|EMPTY)$\n"


@pytest.mark.parametrize("end", ["\r", "\v", "\f", "\x85", "\u2028"])
def test_a_line_of_a_dump_ends_with_a_newline_only(end: str) -> None:
    assert condor_config.values(condor_config.parse_dump(f"A = x{end}B = y\n")) == {"A": f"x{end}B = y"}


@given(st.dictionaries(NAMES.map(str.upper), VALUES))
def test_any_dump_is_read_with_and_without_sources(macros: dict[str, str]) -> None:
    plain = "".join(f"{name} = {value}\n" for name, value in macros.items())
    assert condor_config.values(condor_config.parse_dump(plain)) == macros
    verbose = "".join(f"{n} = {v}\n # at: /etc/x, line 3\n # raw: {n} = {v}\n" for n, v in macros.items())
    found = condor_config.parse_dump(verbose)
    assert condor_config.values(found) == macros and {m.source for m in found.values()} <= {"/etc/x, line 3"}


@pytest.mark.parametrize(
    "script, said",
    [
        ("echo broken >&2; exit 1", "condor_config_val fails: broken"),
        ("sleep 60", "condor_config_val does not answer within 0.1 s"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    program(tmp_path, script, monkeypatch)
    timeout = 0.1 if "0.1" in said else 60
    with pytest.raises(JobLensError, match=said):
        condor_commands.ask("condor_config_val", timeout=timeout)


def test_a_command_that_is_missing_is_named() -> None:
    with pytest.raises(JobLensError, match="condor_none is not in the PATH: is HTCondor installed"):
        condor_commands.ask("condor_none")
