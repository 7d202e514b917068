"""What <SUBSYS>_DEBUG, <SUBSYS>_LOG and MAX_<SUBSYS>_LOG mean to a log, as they do to HTCondor's daemons."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common.log_settings import CATEGORIES, OPTIONS, Flags, log_settings, parse_debug

SEPARATORS = st.sampled_from([" ", ", ", "|", " | ", ",", "\t"])


@pytest.mark.parametrize(
    "value, flags",
    [
        ("", Flags()),
        ("D_ALWAYS D_ERROR", Flags()),
        ("D_FULLDEBUG", Flags(full_debug=True)),
        ("d_fulldebug:2", Flags(full_debug=True)),
        ("D_ALWAYS:2", Flags(full_debug=True)),
        ("D_FULLDEBUG:0", Flags()),
        ("D_FULLDEBUG, -D_FULLDEBUG", Flags()),
        ("D_FULLDEBUG D_ALWAYS", Flags(full_debug=True)),
        ("D_PID|D_CAT", Flags(pid=True, category=True)),
        ("D_CATEGORY -D_CATEGORY:1", Flags(category=True)),
        ("D_ALL", Flags(pid=True, category=True)),
        ("D_ALL:2 D_SUB_SECOND", Flags(True, True, True, True)),
        ("D_ANY:2", Flags(full_debug=True)),
        ("D_COMMAND D_SECURITY:2", Flags()),
        ('"D_PID"', Flags(pid=True)),
    ],
)
def test_words(value: str, flags: Flags) -> None:
    assert parse_debug(value) == (flags, [])


@given(
    st.lists(st.tuples(st.sampled_from([*CATEGORIES, *OPTIONS]), st.sampled_from(["", ":0", ":1", ":2"]))), SEPARATORS
)
def test_any_words_of_htcondors_are_known(words: list[tuple[str, str]], separator: str) -> None:
    flags, unknown = parse_debug(separator.join(word + verbosity for word, verbosity in words))
    assert unknown == []
    told = [verbosity for word, verbosity in words if word in ("D_PID", "D_ALL")]
    assert flags.pid == bool(told and told[-1] != ":0")


@given(st.text(max_size=200))
def test_anything_costs_one_line_at_most(value: str) -> None:
    _, problems = log_settings("JOBLENSD", "JobLensdLog", {"JOBLENSD_DEBUG": value})
    assert len(problems) <= 1 and all(re.fullmatch("JOBLENSD_DEBUG: [ -~]{20,400}", line) for line in problems)


def test_an_unknown_word_is_named_with_what_is_right() -> None:
    _, (line,) = log_settings("JOBLENSD", "JobLensdLog", {"JOBLENSD_DEBUG": "D_PID verbose, D_FULLDEBUG", "LOG": "/l"})
    assert line == (
        "JOBLENSD_DEBUG: HTCondor has no debug level verbose: what has an effect is "
        "D_FULLDEBUG, D_PID, D_CATEGORY, D_SUB_SECOND; correct it and run condor_reconfig"
    )


def test_which_macro_counts() -> None:
    macros = {"LOG": "/log", "ALL_DEBUG": "D_PID", "DEFAULT_DEBUG": "D_FULLDEBUG", "MAX_DEFAULT_LOG": "1 Mb"}
    settings, problems = log_settings("JOBLENSD", "JobLensdLog", macros)
    assert problems == [] and settings.path == "/log/JobLensdLog" and settings.greatest_bytes == 1 << 20
    assert settings.flags == Flags(full_debug=True, pid=True)
    own = {"JOBLENSD_LOG": "/else/where", "JOBLENSD_DEBUG": "D_CATEGORY", "MAX_JOBLENSD_LOG": "500"}
    settings, problems = log_settings("JOBLENSD", "JobLensdLog", {**macros, **own})
    assert problems == [] and settings.path == "/else/where" and settings.greatest_bytes == 500
    assert settings.flags == Flags(pid=True, category=True)
    assert log_settings("JOBLENSD", "JobLensdLog", {})[0].path == "/var/log/condor/JobLensdLog"


@pytest.mark.parametrize(
    "value, size",
    [
        ("0", 0),
        ("10 Mb", 10 << 20),
        ("10MB", 10 << 20),
        ("1 Gb", 1 << 30),
        ("64Kb", 1 << 16),
        ("7 Bytes", 7),
        ("2M", 2 << 20),
    ],
)
def test_sizes(value: str, size: int) -> None:
    settings, problems = log_settings("JOBLENSD", "JobLensdLog", {"MAX_JOBLENSD_LOG": value})
    assert settings.greatest_bytes == size and problems == []


@pytest.mark.parametrize("value", ["1 Day", "5m", "10 Min", "many", "-5", "1 Hr"])
def test_what_is_no_size_leaves_the_default(value: str) -> None:
    settings, (line,) = log_settings("JOBLENSD", "JobLensdLog", {"MAX_JOBLENSD_LOG": value})
    assert settings.greatest_bytes == 10 << 20
    assert line.startswith(f"MAX_JOBLENSD_LOG = {value} is not a size such as 10 Mb")


def test_the_header_of_a_line() -> None:
    assert re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d", Flags().header("D_ALWAYS"))
    full = Flags(pid=True, category=True, sub_second=True).header("D_ERROR")
    assert re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3} \(pid:\d+\) \(D_ERROR\)", full)
