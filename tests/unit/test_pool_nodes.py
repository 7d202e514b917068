"""The ad of a node from joblensd's rows to the lines of joblens pool."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import classad2
import numpy as np
import pytest
from cli_samples import busy, row

from condor_joblens import __version__
from condor_joblens.cli import main, pool
from condor_joblens.cli.terminal import Style
from condor_joblens.model.metrics import empty_rows
from condor_joblens.publish import node_ad, node_doctor
from condor_joblens.publish.node_ad import Health, NodeAd
from condor_joblens.publish.node_doctor import NodeDoctor

NOW = 1_800_000_000.0


def node(tmp_path: Path, **facts: Any) -> NodeAd:
    (tmp_path / "attached").write_text(json.dumps({"Version": __version__, "Source": "bpf", **facts}))
    return NodeAd(str(tmp_path))


def parsed(block: str) -> dict[str, Any]:
    """JobLensNode as HTCondor reads it."""
    ad = classad2.parseOne(block.rpartition("\n- ")[0])
    assert ad["SlotName"] == "slot1@"
    return {name: ad["JobLensNode"].eval(name) for name in ad["JobLensNode"]}


def test_jobs_are_counted_by_level_and_those_that_have_ended_are_not() -> None:
    rows = np.concatenate([row(), busy(complete=False, lost=7), busy(lost=2), row(final=True, complete=False)])
    assert node_ad.count(rows) == node_ad.JobCounts((0, 1, 2, 0, 0), incomplete=1, lost=7)
    assert node_ad.count(empty_rows(0)) == node_ad.JobCounts((0, 0, 0, 0, 0), 0, 0)


def test_a_node_tells_its_state_when_it_changes_and_now_and_then(tmp_path: Path) -> None:
    ad, jobs = node(tmp_path), node_ad.count(np.concatenate([row(), busy()]))
    first = ad.block(jobs, "", Health(), NOW)
    assert first.endswith("- JobLensNode update:true\n")
    told = parsed(first)
    assert (told["Version"], told["Source"], told["UpdateTime"]) == (__version__, "bpf", NOW) and "Doctor" not in told
    assert (told["Levels"]["Basic"], told["Levels"]["Io"], told["Incomplete"], told["Lost"]) == (1, 1, 0, 0)
    assert ad.block(jobs, "", Health(), NOW + 299) == ""
    assert ad.block(jobs, "", Health(), NOW + 300).endswith("update:false\n"), "nothing new: no update of the collector"
    found = ad.block(jobs, "", Health("warn", 'knobs: "x" is\nwrong'), NOW + 301)
    assert found.endswith("update:true\n")
    assert (parsed(found)["Doctor"], parsed(found)["Says"]) == ("warn", 'knobs: "x" is?nwrong')


def test_a_period_that_becomes_shorter_counts_at_once(tmp_path: Path) -> None:
    ad, jobs = node(tmp_path), node_ad.count(row())
    assert ad.block(jobs, "", Health(), NOW)
    ad.period = 10.0
    assert ad.block(jobs, "", Health(), NOW + 9) == ""
    assert ad.block(jobs, "", Health(), NOW + 10).endswith("update:false\n")


def test_an_idle_node_and_one_without_joblensd_have_an_ad_too(tmp_path: Path) -> None:
    idle = parsed(node(tmp_path).block(node_ad.count(empty_rows(0)), "", Health("ok"), NOW))
    assert (idle["Doctor"], idle["Levels"]["Basic"]) == ("ok", 0)
    dead = parsed(NodeAd(str(tmp_path / "none")).block(None, "joblensd writes no new numbers", Health("ok"), NOW))
    assert (dead["Doctor"], dead["Says"]) == ("FAIL", "joblensd writes no new numbers") and "Levels" not in dead
    assert dead["Installed"] == __version__


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"Version": ["x"], "Source": 7}'])
def test_whatever_stands_in_joblensds_file_the_ad_can_be_read(tmp_path: Path, text: str) -> None:
    ad = node(tmp_path)
    (tmp_path / "attached").write_text(text)
    assert parsed(ad.block(node_ad.count(row()), "", Health("ok"), NOW))["Installed"] == __version__


# -- doctor's look --------------------------------------------------------------------------------------------


def finished(doctor: NodeDoctor) -> Health:
    """The health after a look; the clock is ours, the process takes as long as it takes."""
    doctor.soon()
    doctor.poll(100.0)
    doctor.poll(111.0)
    while doctor._process is not None:
        time.sleep(0.02)
        doctor.poll(112.0)
    return doctor.health


def saying(text: str) -> NodeDoctor:
    return NodeDoctor((sys.executable, "-c", f"print({text!r}, end='')"))


@pytest.mark.parametrize(
    ("findings", "health"),
    [
        ([("a", "ok", "x")], Health("ok", "")),
        ([("a", "ok", "x"), ("knobs", "warn", "y"), ("b", "warn", "z")], Health("warn", "knobs: y")),
        ([("knobs", "warn", "y"), ("joblensd", "FAIL", "gone")], Health("FAIL", "joblensd: gone")),
    ],
)
def test_the_worst_finding_is_the_nodes(findings: list[tuple[str, str, str]], health: Health) -> None:
    said = json.dumps([{"Check": check, "State": state, "Finding": text} for check, state, text in findings])
    assert finished(saying(said)) == health


@pytest.mark.parametrize("said", ["", "[]", "x", '{"a": 1}', '[{"State": "fine"}]', "[" * 5000])
def test_what_is_no_answer_of_doctors_is_said(said: str) -> None:
    assert finished(saying(said)) == Health("warn", "joblens doctor fails here: run it by hand")


def test_a_look_that_does_not_end_or_says_too_much_is_given_up() -> None:
    hangs = NodeDoctor((sys.executable, "-c", "import time; time.sleep(1000)"))
    hangs.poll(100.0)
    hangs.poll(111.0)
    hangs.poll(112.0)
    assert hangs.health == Health()
    hangs.poll(111.0 + node_doctor.PATIENCE)
    assert hangs.health == node_doctor.NO_ANSWER
    endless = NodeDoctor((sys.executable, "-c", f"print('x' * {2 * node_doctor.MAX_BYTES})"))
    assert finished(endless) == node_doctor.NO_ANSWER
    assert finished(NodeDoctor(("/no/such/program",))).state == "warn"


def test_the_first_look_is_a_little_after_the_start_and_the_next_an_hour_later() -> None:
    doctor = saying("[]")
    doctor.poll(100.0)
    doctor.poll(109.0)
    assert doctor._process is None
    doctor.poll(110.0)
    assert doctor._process is not None
    doctor.stop()
    while doctor._process is not None:
        doctor.poll(111.0)
    doctor.poll(110.0 + node_doctor.EVERY - 1)
    assert doctor._process is None
    doctor.poll(110.0 + node_doctor.EVERY)
    assert doctor._process is not None
    doctor.stop()


def test_a_node_that_fails_is_looked_at_again_sooner_and_one_that_has_changed_soon() -> None:
    fails = json.dumps([{"Check": "joblensd", "State": "FAIL", "Finding": "gone"}])
    doctor = saying(fails)
    assert finished(doctor).state == "FAIL"
    doctor.poll(112.0 + node_doctor.AGAIN - 1)
    assert doctor._process is None
    doctor.poll(112.0 + node_doctor.AGAIN)
    assert doctor._process is not None
    doctor.soon()  # while a look goes on: what it finds may be of before
    while doctor._process is not None:
        time.sleep(0.02)
        doctor.poll(500.0)
    doctor.poll(500.0)
    doctor.poll(500.0 + node_doctor.FIRST)
    assert doctor._process is not None
    doctor.stop()


def test_what_a_node_finds_for_the_pool_is_not_what_only_root_can_see(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["doctor", "--for-pool", "--json"])
    checks = {each["Check"] for each in json.loads(capsys.readouterr().out)}
    assert "configuration" in checks and not checks & {"user", "sinks"}


# -- the lines ------------------------------------------------------------------------------------------------


def ad(name: str, **node: Any) -> dict[str, Any]:
    levels = {"Off": 0, "Basic": 12, "Io": 2, "Profile": 0, "Trace": 0}
    full = {"Version": "0.2.0", "Source": "bpf", "Doctor": "ok", "Levels": levels, "Incomplete": 0, "Lost": 0,
            "UpdateTime": int(NOW) - 60, **node}  # fmt: skip
    return {"Name": f"slot1@{name}", "Machine": name, "JobLensNode": full, "JobLensVersion": "0.2.0"}


ADS = [
    ad("node1.example.org"),
    ad("node2.example.org", Doctor="warn", Says="knobs: JOBLENS_PERIOD = banana is not a number", Incomplete=3, Lost=7),
    ad("node3.example.org", Doctor="FAIL", Says="joblensd writes no new numbers", Levels=None),
    ad("node4.example.org", UpdateTime=int(NOW) - 3600),
    {"Name": "slot1@node5.example.org", "Machine": "node5.example.org"},
    {"Name": "slot1@node6.example.org", "Machine": "node6.example.org", "JobLensVersion": "0.1.0"},
    ad("node7.example.org", Doctor=None, Version="0.1.9"),
]

PAGE = """\
7 nodes: 1 FAIL, 1 silent, 2 without, 1 unknown, 1 warn, 1 ok; versions 0.2.0
(4), 0.1.0 (1), 0.1.9 (1)
NODE   STATE    VERSION  SOURCE  JOBS  LEVELS          INCOMPLETE  LOST
node3  FAIL     0.2.0    bpf        -  -                        -     -
node4  silent   0.2.0    -          -  -                        -     -
node5  without  -        -          -  -                        -     -
node6  without  0.1.0    -          -  -                        -     -
node7  unknown  0.1.9    bpf       14  12 basic, 2 io           0     0
node2  warn     0.2.0    bpf       14  12 basic, 2 io           3     7
node1  ok       0.2.0    bpf       14  12 basic, 2 io           0     0

node3: joblensd writes no new numbers
node4: nothing for 1 h: see StartLog there, and joblens doctor
node5: nothing of JobLens is published there
node6: JobLens 0.1.0 is older than this attribute
node2: knobs: JOBLENS_PERIOD = banana is not a number"""


def shown(ads: list[dict[str, Any]], width: int = 80) -> list[str]:
    found = [pool.startd({name: value for name, value in each.items() if value is not None}, NOW) for each in ads]
    return pool.lines(sorted(found, key=lambda one: (pool.ORDER.index(one.state), one.name)), Style(width))


def test_the_nodes_of_a_pool_in_80_columns_the_worst_first() -> None:
    found = shown(ADS)
    assert max(map(len, found)) <= 80
    assert "\n".join(found) == PAGE


def test_nodes_whose_short_names_are_the_same_have_their_long_ones() -> None:
    lines = shown([ad("a.one.org"), ad("a.two.org")])
    assert [line.split()[0] for line in lines[2:4]] == ["a.one.org", "a.two.org"]
    assert pool.startd({"Name": "slot1@second@node7", "JobLensNode": {}}, NOW).name == "second@node7"


@pytest.mark.parametrize(
    "node", ["x", {}, {"Levels": "many", "Lost": -1}, {"Doctor": "fine\x1b[2J", "UpdateTime": "x"}]
)
def test_whatever_a_startd_says_is_printed_harmlessly(node: Any) -> None:
    lines = shown([{"Name": "slot1@\x1b[2J", "JobLensNode": node}])
    assert all(line.isprintable() for line in lines)


def test_the_collector_is_asked_and_a_node_that_fails_is_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ads = [{**each, "JobLensNode": {**each["JobLensNode"], "UpdateTime": int(time.time())}} for each in ADS[:1]]
    silent = ad("node4.example.org", UpdateTime=int(time.time()) - 3600)
    absent = [{"Name": "slot1@node9.example.org", "Machine": "node9.example.org"}]
    (tmp_path / "condor_status").write_text(
        f'#!/bin/sh\nprintf \'%s\\n\' "$*" >>{tmp_path}/asked\ncase "$*" in *-absent*) cat {tmp_path}/absent.json;; '
        f"*) cat {tmp_path}/ads.json;; esac\n"
    )
    (tmp_path / "condor_status").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for present, gone, code in ((ads, [], 0), (ads, absent, 0), ([ADS[2], *ads], [], 1), ([silent, *ads], [], 1)):
        (tmp_path / "ads.json").write_text(json.dumps(present))
        (tmp_path / "absent.json").write_text(json.dumps(gone))
        assert main.main(["pool", "--pool", "cm.example.org", "--constraint", "Cpus > 1", "--json"]) == code
        told = json.loads(capsys.readouterr().out)
        assert len(told) == len(present) + len(gone) and told[-1]["State"] == "ok"
        assert [each["Node"] for each in told if each["State"] == "absent"] == ["node9.example.org"] * len(gone)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0].startswith("-pool cm.example.org -constraint SlotID == 1") and "(Cpus > 1)" in asked[0]
    (tmp_path / "ads.json").write_text("")
    (tmp_path / "absent.json").write_text("")
    assert main.main(["pool"]) == 1 and "knows no startd" in capsys.readouterr().err


def test_the_arguments_of_the_command_are_those_it_reads() -> None:
    options = main.parser().parse_args(["pool"])
    assert isinstance(options, argparse.Namespace) and options.pool is None and options.constraint is None
