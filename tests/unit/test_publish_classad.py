"""JobLensUsage as HTCondor's two parsers read it, for any values that a row can hold."""

from __future__ import annotations

import math
import re
from typing import Any

import classad2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.model import classes, metrics
from condor_joblens.model.death_causes import BY_HTCONDOR
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import ELLIPSIS
from condor_joblens.publish import classad
from condor_joblens.publish.attribute import ATTRIBUTE
from condor_joblens.publish.shortening import SENTENCES


def parse_old(text: str) -> dict[str, Any]:
    """As the startd and the starter read it: a line of a long-form ad."""
    return plain(classad2.parseOne(f"{ATTRIBUTE} = {text}\n")[ATTRIBUTE])


def parse_new(text: str) -> dict[str, Any]:
    return plain(classad2.ClassAd(text))


def plain(ad: Any) -> dict[str, Any]:
    return {name: plain(ad[name]) if isinstance(ad[name], classad2.ClassAd) else ad[name] for name in ad}


def expected(row: np.void) -> dict[str, Any]:
    """What the issue of the format says, made another way than the encoder makes it."""
    ad: dict[str, Any] = {"Schema": metrics.SCHEMA}
    for field in metrics.FIELDS:
        value = row[field.name].item()
        if field.attribute is None:
            continue
        if isinstance(value, bytes):
            text = re.sub(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4})", "?", value.decode("utf-8", "replace"))
            shown = "".join(c if " " <= c <= "~" and c != "\\" else "?" for c in text)
            if shown:
                (ad.setdefault(field.group, {}) if field.group else ad)[field.attribute] = shown
        elif isinstance(value, bool):
            ad[field.attribute] = value
        elif value >= 0 and math.isfinite(value):
            ad[field.attribute] = round(value, 6)
    in_use = {(m.group, m.member) for m in metrics.METRICS if row[m.column].item() > 0}
    for metric in metrics.METRICS:
        value = row[metric.column].item()
        shown = value > 0 if metric.group == "Errors" else value >= 0
        shown = shown and math.isfinite(value)
        if shown and (not metric.member or (metric.group, metric.member) in in_use):
            digits = {"cores": 3, "hours": 2}.get(metric.unit, 6)
            place = ad.setdefault(metric.group, {})
            if metric.member:
                place = place.setdefault(metric.member, {})
            place[metric.name] = round(value, digits)
    return ad


def column_values(name: str) -> st.SearchStrategy[Any]:
    type = metrics.ROW[name]
    if type.kind == "S":
        texts = st.text(max_size=type.itemsize).map(lambda text: metrics.cut(text, name))
        return st.one_of(st.just(b""), texts, st.binary(max_size=type.itemsize))
    if type.kind == "f":
        return st.one_of(st.just(math.nan), st.just(math.inf), st.floats(-1, 1e15), st.floats(0, 1e300))
    if type.kind == "b":
        return st.booleans()
    limits = np.iinfo(type)
    return st.integers(max(metrics.ABSENT, limits.min), limits.max)


@st.composite
def rows(draw: Any) -> np.ndarray:
    row = metrics.empty_rows(1)
    for name in draw(st.lists(st.sampled_from(metrics.SINGLE), unique=True)):
        row[name] = draw(column_values(name))
    return row


@st.composite
def full_rows(draw: Any) -> np.ndarray:
    """Large values in every column."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    row = full_row()
    row["level_number"] = draw(st.integers(0, 4))
    longest = draw(st.integers(7, 18))
    for metric in metrics.METRICS:
        row[metric.column] = random.integers(10**6, 10**longest)
    character = draw(st.sampled_from(["x", '"', "\\", "é", "\n", "€"]))
    for field in metrics.FIELDS:
        if field.type.startswith("S"):
            row[field.name] = metrics.cut(character * 300, field.name)
    return row


def full_row() -> np.ndarray:
    """The largest imaginable values everywhere."""
    row = metrics.empty_rows(1)
    for name in metrics.SINGLE:
        type = metrics.ROW[name]
        if type.kind == "S":
            row[name] = b'"' * type.itemsize
        elif type.kind == "f":
            row[name] = 1.2345678901234567e299
        else:
            row[name] = True if type.kind == "b" else np.iinfo(type).max
    return row


@settings(max_examples=examples(200))
@given(rows())
def test_both_parsers_read_what_the_row_says(row: np.ndarray) -> None:
    (text,) = classad.usage_ads(row)
    assert text.isascii() and "\n" not in text and len(text) <= limit(row)
    assert parse_old(text) == parse_new(text)
    told, whole = parse_new(text), expected(row[0])
    if told.pop("Shortened", False):
        assert is_part(told, whole)
    else:
        assert told == whole


def limit(row: np.ndarray) -> int:
    return classad.LIMIT if row["level_number"][0] < 2 else classad.LIMIT_IO


def is_part(told: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Whether everything in `told` is in `whole`, texts perhaps without their ends."""
    for name, value in told.items():
        if isinstance(value, dict):
            assert is_part(value, whole[name])
        elif isinstance(value, str):
            assert whole[name].startswith(value.removesuffix(ELLIPSIS) if name in SENTENCES else value)
        else:
            assert whole[name] == value
    return True


@settings(max_examples=examples(200))
@given(full_rows())
def test_a_row_with_everything_in_it_gives_an_ad_within_its_limit(row: np.ndarray) -> None:
    (text,) = classad.usage_ads(row)
    assert len(text) <= limit(row)
    told = parse_old(text)
    assert told == parse_new(text) and told.pop("Shortened") is True
    assert is_part(told, expected(row[0]))


def test_types_survive() -> None:
    row = metrics.empty_rows(1)
    row["cpu_seconds"], row["process_live"], row["final"] = 2.0, 3, True
    ad = parse_old(classad.usage_ads(row)[0])
    assert (ad["Cpu"]["Seconds"], ad["Process"]["Live"], ad["Final"]) == (2.0, 3, True)
    assert isinstance(ad["Cpu"]["Seconds"], float), "an integer would make a user's division an integer's"


def test_what_is_not_known_is_absent() -> None:
    row = metrics.empty_rows(1)
    row["io_read_calls"] = 0
    ad = parse_old(classad.usage_ads(row)[0])
    assert ad["Io"] == {"ReadCalls": 0}
    assert not {"Cpu", "Memory", "Tcp", "Process", "Note", "Requested"} & set(ad)


def test_at_basic_the_reason_gives_way_first_and_the_run_stays() -> None:
    row = full_row()
    row["level_number"] = 1
    for metric in metrics.METRICS:
        row[metric.column] = -1 if metric.level > Level.BASIC else 123456.789 if metric.is_float else 123456789
    for field in metrics.FIELDS:
        if field.type.startswith("S"):
            row[field.name] = metrics.cut("x" * 300, field.name)
    row["reason"], row["note"] = b"r" * 128, b'"' * 240
    row["profile_hottest"] = row["trace_functions"] = row["peek_values"] = b""
    for name in metrics.PEEKED:
        row[f"peek_{name.lower()}"] = -1  # few jobs ask for any
    ad = parse_old(classad.usage_ads(row)[0])
    assert ad["Shortened"] is True
    assert ad["Run"] == "x" * 176 and len(ad.get("Reason", "")) < 128
    assert {"Cvmfs"} <= set(ad["Server"]) <= set(classes.SERVERS)  # no job asks all of them
    numbers = {metric.path for metric in metrics.METRICS if metric.level <= Level.BASIC and not metric.member}
    numbers -= {f"Peek.{name}" for name in metrics.PEEKED}
    groups = [group for group in metrics.GROUPS if group != "Server"]
    of_few = {"Profile.Hottest", "Trace.Functions", "Peek.Values"}
    texts = {field.path for field in metrics.FIELDS if field.group} - of_few
    assert {f"{group}.{name}" for group in groups for name in ad.get(group, ())} == numbers | texts


def test_of_many_classes_those_with_most_in_them_stay() -> None:
    row = full_row()
    row["level_number"] = 2
    for metric in metrics.METRICS:
        row[metric.column] = 1000 if metric.member or metric.group == "Errors" else 123456789012345
    row["fs_cvmfs_failed_opens"] = row["wait_cvmfs_blocked_seconds"] = row["errors_estale"] = 10**9
    ad = parse_old(classad.usage_ads(row)[0])
    assert ad["Shortened"] is True
    assert ad["Fs"]["Cvmfs"]["FailedOpens"] == ad["Wait"]["Cvmfs"]["BlockedSeconds"] == ad["Errors"]["ESTALE"] == 10**9
    assert len(ad["Fs"]) < len(classes.FILESYSTEMS)
    assert {"RunningSeconds", "RunQueueSeconds", "UninterruptibleSeconds", "SleepSeconds"} <= set(ad["Wait"])


def test_an_end_that_the_schedd_explains_stays_an_expression_however_little_room_there_is() -> None:
    row = full_row()
    row["level_number"], row["death"] = 1, f"{BY_HTCONDOR} (SIGTERM)".encode()
    (text,) = classad.usage_ads(row)
    ad = parse_old(text)
    assert len(text) <= classad.LIMIT and ad["Shortened"] is True
    assert isinstance(ad["Death"], classad2.ExprTree)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ('JobStatus=3;RemoveReason="by alice"', "removed by the schedd: by alice"),
        ('JobStatus=5;HoldReason="memory"', "held by the schedd: memory"),
        ("JobStatus=5;HoldReason=undefined", "held by the schedd: no reason given"),
        ("JobStatus=1", classad2.Value.Undefined),
    ],
)
def test_the_job_says_how_the_schedd_ended_it(job: str, why: str | classad2.Value) -> None:
    row = metrics.empty_rows(1)
    row["death"], row["update_time"] = BY_HTCONDOR.encode(), 1000
    (text,) = classad.usage_ads(row)
    ad = classad2.ClassAd(f"[EnteredCurrentStatus=1010;{job};JobLensUsage={text};Why=JobLensUsage.Death]")
    assert ad.eval("Why") == why


def test_a_usual_ad_is_whole() -> None:
    row = metrics.empty_rows(1)
    row["cpu_seconds"], row["run"] = 1.5, b"ap#1.0#1#1"
    assert "Shortened" not in parse_old(classad.usage_ads(row)[0])


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (r"f\x1b[31mail exited 1", "f?[31mail exited 1"),
        (r"a\u202eb exited 1", "a?b exited 1"),
        (r"a\b exited 1", "a?b exited 1"),
        ("a/b exited 1", "a/b exited 1"),
    ],
)
def test_what_an_ad_cannot_hold_is_a_question_mark_and_no_slash(kept: str, told: str) -> None:
    row = metrics.empty_rows(1)
    row["death"], row["exits"] = metrics.cut_words(kept, "death"), metrics.cut_words(kept, "exits")
    (text,) = classad.usage_ads(row)
    assert parse_old(text)["Death"] == parse_new(text)["Death"] == told
    assert classad.quote(kept) == f'"{told}"'


@pytest.mark.parametrize(
    "hostile", ['"; Cpu = 99; x = "', 'a\\"; Cpu = 99; x = \\"', "\\", '"', "a\nCpu = 99", "]", "//"]
)
def test_nothing_breaks_out_of_a_string(hostile: str) -> None:
    row = metrics.empty_rows(1)
    row["requested"] = hostile.encode()
    (text,) = classad.usage_ads(row)
    for ad in (parse_old(text), parse_new(text)):
        assert ad == expected(row[0])
        assert "Cpu" not in ad
