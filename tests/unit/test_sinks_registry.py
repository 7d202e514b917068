"""Which sinks there are, what their knobs say, and secrets that are read from files alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common import config_parser, knob_values
from condor_joblens.common.errors import JobLensError
from condor_joblens.sinks import Sink, SinkKnob, parsers, registry, secret
from condor_joblens.sinks.registry import configure, load, settings_of


class Needy(Sink):
    name = "needy"
    knobs = (
        SinkKnob("SERVER", None, str, "HOST", "whom to ask"),
        SinkKnob("COUNT", "3", parsers.integer(1, 9), "things", "how many"),
    )


class Listener(Sink):
    name = "listener"
    knobs = (SinkKnob("ADDRESS", "127.0.0.1:9753", knob_values.address, "HOST:PORT", "where", listens=True),)


@pytest.mark.parametrize("name", registry.SHIPPED)
def test_each_of_ours_is_there_and_its_defaults_are_right(name: str) -> None:
    sink = load(name)
    assert sink.name == name
    for knob in sink.knobs:
        assert knob.help and knob.unit and knob.name == knob.name.upper()
        if knob.default is not None:
            knob.parse(knob.default)


def test_the_default_needs_no_setting() -> None:
    configs, problems = configure(config_parser.parse({})[0].sinks, {})
    assert [found.name for found in configs] == ["prometheus"] and problems == []


def test_two_that_want_the_same_port_cost_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", lambda name: Listener)
    configs, problems = configure(["one", "two"], {"JOBLENS_SINK_TWO_ADDRESS": "127.0.0.1:9753"})
    assert [found.name for found in configs] == ["one"]
    assert problems[0] == "the sinks one and two both want 127.0.0.1:9753: two is left out; give it another"


def test_what_is_missing_or_wrong_is_named() -> None:
    settings, problems = settings_of("needy", Needy, {})
    assert settings is None and problems == [
        "the sink needy needs JOBLENS_SINK_NEEDY_SERVER (whom to ask): it is left out"
    ]
    settings, problems = settings_of(
        "needy", Needy, {"joblens_sink_needy_server": " x ", "JOBLENS_SINK_NEEDY_COUNT": "12"}
    )
    assert (
        settings == {"server": "x", "count": 3, "period": 0, "metrics": None}
        and "is not a whole number from 1 to 9" in problems[0]
    )
    _, problems = settings_of("needy", Needy, {"JOBLENS_SINK_NEEDY_SERVER": "x", "JOBLENS_SINK_NEEDY_SEVRER": "y"})
    assert "did you mean JOBLENS_SINK_NEEDY_SERVER?" in problems[0]


def test_each_sink_that_takes_samples_has_a_period_and_a_filter() -> None:
    macros = {"JOBLENS_SINK_FILE_PERIOD": "30", "JOBLENS_SINK_FILE_METRICS": "cpu.*, Fs.*.ReadBytes Endpoints"}
    settings, problems = settings_of("file", load("file"), macros)
    assert problems == [] and settings is not None and settings["period"] == 30
    assert {name.partition(".")[0] for name in settings["metrics"]} == {"Cpu", "Fs", "Endpoints"}
    assert "Fs.Nfs.ReadBytes" in settings["metrics"] and "Fs.Nfs.Opens" not in settings["metrics"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("Cpu.UsrSeconds", "Cpu.UsrSeconds names none, did you mean Cpu.UserSeconds?: the default * is used"),
        ("Cpu.*, 17", "17 names none, `joblens metrics` has them: the default * is used"),
    ],
)
def test_a_metric_that_there_is_not_costs_one_line(value: str, said: str) -> None:
    settings, problems = settings_of("file", load("file"), {"JOBLENS_SINK_FILE_METRICS": value})
    assert settings is not None and settings["metrics"] is None
    (problem,) = problems
    assert problem.startswith(f"JOBLENS_SINK_FILE_METRICS = {value} is not a list of metrics: ") and said in problem


@pytest.mark.parametrize("value", ["-1", "nan", "1e9", "a minute"])
def test_a_period_that_is_none_costs_one_line(value: str) -> None:
    _, problems = settings_of("file", load("file"), {"JOBLENS_SINK_FILE_PERIOD": value})
    assert len(problems) == 1 and "is not a number of seconds from 0 to 86400: the default 0 is used" in problems[0]


def test_sinks_that_say_when_and_what_themselves_have_no_such_knob() -> None:
    for name in ("prometheus", "prmon"):
        _, problems = settings_of(name, load(name), {f"JOBLENS_SINK_{name.upper()}_PERIOD": "30"})
        assert "is no knob of the sink" in problems[0]


def test_a_secret_in_the_configuration_is_never_repeated() -> None:
    _, problems = settings_of(
        "needy", Needy, {"JOBLENS_SINK_NEEDY_SERVER": "x", "JOBLENS_SINK_NEEDY_PASSWORD": "hunter2"}
    )
    assert problems and "hunter2" not in " ".join(problems)


def test_what_is_no_sink_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _, problems = configure(["promeheus"], {})
    assert problems == ["JOBLENS_SINKS: there is no sink promeheus: did you mean prometheus?"]
    monkeypatch.setitem(registry.SHIPPED, "broken", "condor_joblens.nothing:Nothing")
    monkeypatch.setitem(registry.SHIPPED, "other", "condor_joblens.common.config:Config")
    _, problems = configure(["broken", "other"], {})
    assert "lacks condor_joblens.nothing" in problems[0] and "is no subclass" in problems[1]


def test_config_leaves_what_is_told_to_sinks_to_them() -> None:
    assert config_parser.parse({"JOBLENS_SINK_KAFKA_SERVERS": "x"})[1] == []
    assert config_parser.parse({"JOBLENS_SINKS": "Kafka, prometheus"})[0].sinks == ("kafka", "prometheus")
    assert "is not a list of names" in config_parser.parse({"JOBLENS_SINKS": "kafka; rm"})[1][0]


@given(st.dictionaries(st.text("JOBLENS_SIKAFP_", min_size=1), st.text(max_size=20), max_size=5))
def test_any_macros_cost_lines_and_nothing_else(macros: dict[str, str]) -> None:
    for problem in configure(["file"], macros)[1]:
        assert "\n" not in problem


# Secrets


def test_a_secret_is_read_without_the_end_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2 \n")
    file.chmod(0o640)
    assert secret.read(str(file)) == "hunter2 "


def test_a_secret_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2")
    file.chmod(0o644)
    with pytest.raises(JobLensError, match="everybody: chgrp joblens and chmod 640") as caught:
        secret.read(str(file))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_secret_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(JobLensError, match="write the secret into it"):
        secret.read(str(file))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for name, words in (("fifo", "no plain file"), ("missing", "put the secret there")):
        with pytest.raises(JobLensError, match=words):
            secret.read(str(tmp_path / name))
