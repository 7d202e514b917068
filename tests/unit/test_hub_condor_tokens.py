"""Log-in by tokens of HTCondor, without a schedd: the file that says which, and what is no answer of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.web.condor_tokens import (
    MOST_TOKEN,
    CondorSettings,
    CondorTokens,
    ScheddGone,
    TokenRefused,
    read_settings,
)
from condor_joblens.hub.web.people import read_people


@pytest.mark.parametrize(
    ("text", "why"),
    [("[condors]", "one section"), ("[condor]\nscheds = x", "there is no scheds"), ("[condor]\npool = x", "schedd too"),
     ("x", "can't be read")],
)  # fmt: skip
def test_a_wrong_line_of_the_file_is_named(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "condor").write_text(text)
    with pytest.raises(JobLensError, match=why):
        read_settings(str(tmp_path / "condor"))


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c.d", "a.b.c\n", "-a.b.c d", "a.b." + "c" * MOST_TOKEN])
def test_what_is_no_token_is_asked_of_nobody(token: str) -> None:
    with pytest.raises(TokenRefused, match="is no token of HTCondor"):
        CondorTokens(CondorSettings("", "", "/nonexistent")).whose(token)


@pytest.mark.parametrize("said", ["exit 1", "echo hello", "echo []", 'echo "{}"', """echo '{"address": "x"}'"""])
def test_what_is_no_answer_is_nobodys_login(said: str, tmp_path: Path) -> None:
    (tmp_path / "python").write_text(f"#!/bin/sh\n{said}\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(ScheddGone):
        CondorTokens(CondorSettings("", "", str(tmp_path / "python"))).whose("a.b.c")


def test_a_login_by_a_token_has_a_domain() -> None:
    with pytest.raises(JobLensError, match="has no domain: write condor:NAME@DOMAIN"):
        read_people("[a]\nlogin = condor:alice")
    assert read_people("[a]\nlogin = condor:alice@pool")[0].logins == {"condor:alice@pool"}
