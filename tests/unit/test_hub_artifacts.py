"""Artifacts of nodes at the hub: chunks that come twice or anew, a share for each person, and what is drawn of them."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from profile_samples import hostile, profile
from traced_samples import content as traced

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub import artifacts as hub_artifacts
from condor_joblens.hub import backups
from condor_joblens.hub.artifacts import FOLDER, INDEX, MOST_CHUNK, NODE_SHARES, VERSION, Artifacts, Refused
from condor_joblens.hub.newer import Newer
from condor_joblens.hub.web.draw import drawn
from condor_joblens.profiles import last_events, pprof

RUN = "ap1#7.0#17#1"


def head(content: bytes, number: int = 1, **more: Any) -> dict[str, Any]:
    found = {
        **{"Artifact": f"{number}.profile", "ArtifactKind": "profile", "Run": RUN, "RunNumber": 1, "Owner": "anna"},
        **{"ContentType": "x/y", "ContentEncoding": "", "BeginTime": 1.0, "EndTime": 2.0, "Offset": 0},
        **{"Length": len(content), "Sha256": hashlib.sha256(content).hexdigest()},
    }
    return {**found, **more}


def put(artifacts: Artifacts, content: bytes, number: int = 1, node: str = "node1", **more: Any) -> tuple[int, bool]:
    place, is_whole = 0, False
    while not is_whole:
        about = head(content, number, **{"Offset": place, **more})
        place, is_whole = artifacts.put(node, about, content[place : place + 10])
    return place, is_whole


def test_chunks_that_come_twice_or_out_of_order_are_kept_once(tmp_path: Path) -> None:
    artifacts, content = Artifacts(tmp_path, 1 << 20), bytes(range(25))
    assert artifacts.put("node1", head(content), content[:10]) == (10, False)
    assert artifacts.put("node1", head(content, Offset=20), content[20:]) == (10, False)
    assert artifacts.put("node1", head(content), content[:10]) == (10, False)
    assert artifacts.of_run(RUN, ["node1"]) == []
    again = Artifacts(tmp_path, 1 << 20)  # a hub that was killed after it had written more than it noted
    (file,) = (tmp_path / FOLDER).glob("*.artifact")
    file.write_bytes(content[:10] + b"garbage that nobody noted, and more of it")
    assert put(again, content) == (25, True)
    assert put(again, content) == (25, True)
    (kept,) = again.of_run(RUN, ["node1"])
    assert again.content(kept.id) == content and (kept.kind, kept.owner, kept.schedd) == ("profile", "anna", "ap1")
    assert again.of_run(RUN, ["node2"]) == [] and again.of_run("ap1#8.0#17#1", ["node1"]) == []


def test_content_that_is_not_what_its_checksum_says_is_refused(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 1 << 20)
    with pytest.raises(Refused, match="checksum"):
        put(artifacts, b"x" * 15, Sha256="0" * 64)
    assert artifacts.of_run(RUN, ["node1"]) == [] and not list((tmp_path / FOLDER).glob("*.artifact"))
    put(artifacts, b"x" * 15)
    with pytest.raises(Refused, match="another artifact"):
        put(artifacts, b"y" * 15)


def test_who_has_most_loses_his_oldest(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 100)
    for number in range(1, 4):
        put(artifacts, bytes(25), number)
    for number in range(4, 8):  # bert comes late, and takes no more than half
        put(artifacts, bytes(25), number, Run="ap1#9.0#17#1", Owner="bert")
    assert [kept.id for kept in artifacts.of_run(RUN, ["node1"])] == [2, 3]
    assert [kept.id for kept in artifacts.of_run("ap1#9.0#17#1", ["node1"])] == [6, 7]
    assert len(list((tmp_path / FOLDER).glob("*.artifact"))) == 4
    with pytest.raises(Refused, match="all the room"):
        put(artifacts, bytes(26), 9)


@pytest.mark.parametrize("size", [10, 1])
def test_a_node_that_sends_under_many_names_pushes_out_its_own(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By many bytes, and by many that have one."""
    monkeypatch.setattr(hub_artifacts, "MOST_KEPT", 80)
    artifacts, number = Artifacts(tmp_path, 800), iter(range(1, 1000))
    nodes = [f"other{each}" for each in range(7)]
    for each in range(70):
        put(artifacts, bytes(size), next(number), nodes[each % 7])
    for each in range(200):
        put(artifacts, bytes(size), next(number), "node2", Run="ap1#9.0#17#1", Owner=f"name{each}")
    assert len(artifacts.of_run(RUN, nodes)) == 70, "anna has most, and loses none"
    assert len(artifacts.of_run("ap1#9.0#17#1", ["node2"])) == 80 // NODE_SHARES


def test_a_node_that_has_filled_all_the_room_keeps_no_more_than_another(tmp_path: Path) -> None:
    artifacts, number = Artifacts(tmp_path, 800), iter(range(1, 1000))
    for each in range(100):
        put(artifacts, bytes(10), next(number), "node2", Run="ap1#9.0#17#1", Owner=f"name{each}")
    assert len(artifacts.of_run("ap1#9.0#17#1", ["node2"])) == 80
    for _ in range(60):
        put(artifacts, bytes(10), next(number))
    assert len(artifacts.of_run(RUN, ["node1"])) == len(artifacts.of_run("ap1#9.0#17#1", ["node2"])) == 40


def test_of_nodes_within_their_shares_the_person_who_has_most_loses_his_oldest(tmp_path: Path) -> None:
    artifacts, number = Artifacts(tmp_path, 1000), iter(range(1, 1000))
    for each in range(100):  # anna on twenty nodes, bert's two on one
        put(artifacts, bytes(10), next(number), f"node{each % 20}", **({"Owner": "bert"} if each in (0, 20) else {}))
    for _ in range(10):
        put(artifacts, bytes(10), next(number), "node21", Owner="carl")
    nodes = [f"node{each}" for each in range(22)]
    owners = [kept.owner for kept in artifacts.of_run(RUN, nodes)]
    assert (owners.count("bert"), owners.count("carl"), owners.count("anna")) == (2, 10, 88)


def test_old_ones_go(tmp_path: Path) -> None:
    now = [1.0]
    artifacts = Artifacts(tmp_path, 1000, lambda: now[0])
    put(artifacts, b"old")
    now[0] += 15 * 86400
    put(artifacts, b"new", 2)
    assert [kept.id for kept in artifacts.of_run(RUN, ["node1"])] == [2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"Artifact": "../1.profile"},
        {"Artifact": "1.hang"},
        {"Artifact": 5},
        {"ArtifactKind": None},
        {"Run": ""},
        {"Run": "x" * 301},
        {"Owner": 7},
        {"BeginTime": "nan"},
        {"EndTime": 1e300},
        {"Length": -1},
        {"Offset": 7},
        {"Length": 9 << 20},
        {"Sha256": "A" * 64},
        {"Sha256": 1},
    ],
)
def test_a_head_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused) as raised:
        Artifacts(tmp_path, 1 << 30).put("node1", {**head(b"xyz"), **wrong}, b"xyz")
    assert raised.value.status in (413, 422)
    with pytest.raises(Refused):
        Artifacts(tmp_path, 1 << 30).put("node1", {}, b"")
    big = bytes(MOST_CHUNK + 1)
    with pytest.raises(Refused, match="a chunk"):
        Artifacts(tmp_path, 1 << 30).put("node1", head(big), big)


def test_a_person_s_are_taken_out_and_copied_by_a_backup(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path, 1 << 20)
    put(artifacts, b"one")
    put(artifacts, b"two", 2, Owner="bert")
    artifacts.put("node1", head(b"three", 3), b"th")  # it still comes
    (tmp_path / "copy").mkdir()
    backups.copy_artifacts(tmp_path, tmp_path / "copy")
    copy = Artifacts(tmp_path / "copy", 1 << 20)
    assert [copy.content(kept.id) for kept in copy.of_run(RUN, ["node1"])] == [b"one", b"two"]
    assert artifacts.forget([("anna", "ap1"), ("bert", "ap2")], is_to_be_done=False) == 2
    assert artifacts.forget([("anna", "ap1"), ("bert", "ap2")]) == 2
    assert [kept.owner for kept in artifacts.of_run(RUN, ["node1"])] == ["bert"]
    assert b"anna" not in (tmp_path / FOLDER / INDEX).read_bytes()
    assert [file.read_bytes() for file in (tmp_path / FOLDER).glob("*.artifact")] == [b"two"]


def test_an_index_of_a_newer_hub_is_refused(tmp_path: Path) -> None:
    Artifacts(tmp_path, 0)
    with sqlite3.connect(tmp_path / FOLDER / INDEX) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(Newer):
        Artifacts(tmp_path, 0)


def test_a_profile_is_a_picture_and_hostile_names_are_text_in_it() -> None:
    said, shown = drawn("profile", pprof.encode(profile()))
    assert "Fill" in said
    for content in (shown, drawn("off_cpu", pprof.encode(hostile()))[1]):
        root = ElementTree.fromstring(content)
        names = {each.tag.rpartition("}")[2] for each in root.iter()}
        assert names <= {"svg", "style", "rect", "text", "g", "title", "script", "tspan", "linearGradient", "stop"}, (
            names
        )
        assert len(root.findall(".//{*}script")) == 1
        assert not any(re.match("on|href|src", name.rpartition("}")[2]) for each in root.iter() for name in each.attrib)


def test_reports_are_text_and_what_makes_no_sense_is_said() -> None:
    coverage = last_events.Coverage(1.0, "death", "SIGSEGV", 1.0, 1.0, 1.0, 0, 0, 0)
    event = last_events.Event(1.25, 7, "fit<b>", "failed", "open", "ENOENT", "/x\x1b[31m")
    said, shown = drawn("recorder", last_events.encode(coverage, [event]))
    assert said == "1 events before SIGSEGV" and shown == b"00:00:01.250 fit<b> 7 failed open /x\\x1b[31m ENOENT"
    said, shown = drawn("trace", traced())
    assert said.endswith(" functions") and b"COUNTED FOR" in shown and b"UNWOUND      TOTAL  FUNCTION" in shown
    assert drawn("traceback", b"Traceback:\nKeyError: 'x'\n") == ("KeyError: 'x'", b"Traceback:\nKeyError: 'x'")
    looks = b"".join(json.dumps({"bytes": 0, "began": began}).encode() + b"\n" for began in (10.0, 20.0))
    assert b"the same 10 s before" in drawn("hang", looks)[1]
    for kind in ("profile", "hang", "recorder"):
        with pytest.raises(JobLensError, match="makes no sense"):
            drawn(kind, b"\x1f\x8bgarbage\n")
