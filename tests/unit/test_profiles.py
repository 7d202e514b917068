"""Profiles: how they are kept, put together and shown, whatever their names are."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import xml.etree.ElementTree as ElementTree
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_samples import FILL, HOSTILE, PYTHON, READ, START, hostile, profile, random_profile, waits

from condor_joblens.cli.flame import record, rendered
from condor_joblens.profiles import flame_graph, pprof, protobuf, segment, tree
from condor_joblens.profiles.coarser_segment import one_of
from condor_joblens.profiles.folded import folded
from condor_joblens.profiles.hottest import BY, hottest, sentence
from condor_joblens.profiles.profile import (
    CUT_SHORT,
    Frame,
    Kind,
    Profile,
    Stack,
    by_library,
    coarser,
    cut_short,
    merged,
    under,
    without_rarest,
)
from condor_joblens.profiles.speedscope import speedscope
from condor_joblens.profiles.text import clean

SVG = "{http://www.w3.org/2000/svg}"


# -- put together ---------------------------------------------------------------------------------------------


def test_profiles_are_added_up() -> None:
    both = merged([profile(), dataclasses.replace(profile(), job="12.1", begun=1.7e9 - 60)])
    assert (both.samples, both.lost, both.guessed, both.broken, both.not_ours) == (20, 4, 2, 2, 6)
    assert (both.job, both.node, both.begun, both.ended) == ("12.0 12.1", "node01", 1.7e9 - 60, 1.7e9 + 60)
    assert len(both.stacks) == 3


def test_stacks_below_their_process_and_thread() -> None:
    groups = {stack.frames[:2] for stack in under(profile(), process=True, thread=True).stacks}
    assert {tuple(frame.function for frame in frames) for frames in groups} == {
        ("python3 (100)", "python3"), ("python3 (100)", "reader"), ("python3 (101)", "python3"),
    }  # fmt: skip
    assert {frame.kind for frames in groups for frame in frames} == {Kind.GROUP}


def test_by_library() -> None:
    found = Profile(0, 1)
    found.add(Stack((START, FILL, dataclasses.replace(FILL, function="other"), READ, FILL)), 4)
    (stack,) = by_library(found).stacks
    assert [frame.function for frame in stack.frames] == ["python3.11", "libTree.so", "[kernel]", "libTree.so"]


# -- kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [profile(), random_profile(1), waits(), Profile(5.0, 65.0)])
def test_what_is_kept_comes_back(found: Profile) -> None:
    assert pprof.decode(pprof.encode(found)) == found


def test_hostile_names_come_back_as_text() -> None:
    read = pprof.decode(pprof.encode(hostile()))
    assert read.samples == hostile().samples and len(read.stacks) == len(hostile().stacks)


def test_of_the_kernel_no_address_is_kept() -> None:
    found = Profile(0, 1)
    found.add(Stack((dataclasses.replace(READ, offset=0x7FFF_FFFF_8123_4567),)), 1)
    assert next(iter(pprof.decode(pprof.encode(found)).stacks)).frames == (READ,)


def test_it_is_what_pprof_reads() -> None:
    """By the numbers of profile.proto, without our own reader's eyes."""
    message = list(protobuf.fields(gzip.decompress(pprof.encode(profile()))))
    strings = [value.decode() for field, value in message if field == 6]
    assert strings[0] == "", "the first string of a profile is the empty one"
    types = [dict(protobuf.fields(value)) for field, value in message if field == 1]
    assert [(strings[each[1]], strings[each[2]]) for each in types] == [("samples", "count"), ("cpu", "nanoseconds")]
    samples = [list(protobuf.fields(value)) for field, value in message if field == 2]
    values = [protobuf.unpacked(value) for each in samples for field, value in each if field == 2]
    assert values == [[n, n * 10101010] for n in (6, 3, 1)]
    locations = {
        dict(protobuf.fields(value))[1]: dict(protobuf.fields(value)) for field, value in message if field == 4
    }
    leaf = protobuf.unpacked(dict(samples[0])[1])[0]
    assert locations[leaf][3] == FILL.offset, "the leaf comes first"
    said = {strings[n] for field, value in message if field == 13 for n in protobuf.unpacked(value)}
    assert {"joblens.version=1", "joblens.lost=2", "joblens.guessed=1", "joblens.not_ours=3"} <= said


@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    for packed in (data, gzip.compress(data)):
        with pytest.raises(pprof.NoProfile):
            pprof.decode(packed)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_profile_is_refused_or_another_one(at: int, byte: int) -> None:
    message = bytearray(gzip.decompress(pprof.encode(profile())))
    message[at % len(message)] = byte
    try:
        found = pprof.decode(gzip.compress(bytes(message)))
    except pprof.NoProfile:
        return
    flame_graph.flame_graph(found)
    folded(found)


def test_a_profile_that_says_impossible_times_can_be_shown() -> None:
    """Found by its fuzzer."""
    message = gzip.decompress(pprof.encode(profile()))
    for field in (9, 10, 12):
        for value in (-(1 << 63), (1 << 63) - 1):
            found = pprof.decode(gzip.compress(message + protobuf.number(field, value)))
            for form in ("svg", "folded", "json", "speedscope", "pprof"):
                assert rendered(found, form)


def test_a_bomb_is_not_unpacked() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = packer.compress(bytes(pprof.MOST_BYTES + 1)) + packer.flush()
    with pytest.raises(pprof.NoProfile, match="too large"):
        pprof.decode(bomb)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_numbers_of_protocol_buffers(values: list[int]) -> None:
    assert protobuf.unpacked(next(iter(dict(protobuf.fields(protobuf.numbers(3, values))).values()))) == values
    singles = b"".join(protobuf.number(3, value) for value in values)
    assert [value for _, value in protobuf.fields(singles)] == [value for value in values if value]


# -- shown ----------------------------------------------------------------------------------------------------


def test_self_and_total() -> None:
    found = {heat.name: (heat.self, heat.total) for heat in hottest(profile())}
    assert found == {"Tree::Fill(int)": (6, 9), "vfs_read": (3, 3), "fit_tracks": (1, 10), "_start": (0, 10)}
    lines = {heat.name for heat in hottest(profile(), BY["line"])}
    assert "fit.py:41 fit_tracks" in lines and "Tree::Fill(int)" in lines
    assert {heat.name for heat in hottest(profile(), BY["file"])} == {"libTree.so", "[kernel]", "fit.py", "python3.11"}


def test_a_function_that_calls_itself_counts_once() -> None:
    found = Profile(0, 1)
    found.add(Stack((START, FILL, FILL, FILL)), 5)
    assert {heat.name: heat.total for heat in hottest(found)}["Tree::Fill(int)"] == 5


def test_a_sentence_of_the_hottest() -> None:
    assert sentence(profile(), 2) == "60% Tree::Fill(int) (libTree.so), 30% vfs_read"
    assert sentence(Profile(0, 1)) == ""


def test_folded() -> None:
    assert folded(profile()).splitlines() == [
        "_start;fit_tracks (fit.py:41) 1",
        "_start;fit_tracks (fit.py:41);Tree::Fill(int) 6",
        "_start;fit_tracks (fit.py:41);Tree::Fill(int);vfs_read_[k] 3",
    ]


def test_speedscope() -> None:
    found = speedscope(profile(), "job 12.0")
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = found["shared"]["frames"]
    assert {"name": "fit_tracks", "file": "/home/alice/reco/fit.py", "line": 41} in frames
    for each in found["profiles"]:
        assert set(each) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert each["type"] == "sampled" and each["unit"] == "none"
        assert len(each["samples"]) == len(each["weights"]) and sum(each["weights"]) == each["endValue"]
        assert all(0 <= number < len(frames) for stack in each["samples"] for number in stack)
    assert [each["endValue"] for each in found["profiles"]] == [6, 3, 1]


def test_json() -> None:
    found = record(profile())
    told = [found[name] for name in ("JobId", "Samples", "Lost", "Guessed", "NotOurs")]
    assert told == ["12.0", 10, 2, 1, 3]
    named = [[found["Frames"][number]["Function"] for number in each["Frames"]] for each in found["Stacks"]]
    assert named[0] == ["_start", "fit_tracks", "Tree::Fill(int)"]


def boxes(svg: str) -> list[ElementTree.Element]:
    return [each for each in ElementTree.fromstring(svg).iter(f"{SVG}g") if each.get("class") == "f"]


def test_a_picture_has_each_function_under_its_caller() -> None:
    found = boxes(flame_graph.flame_graph(profile()))
    places = {each.get("data-n"): tuple(map(int, (each.get("data-p") or "").split())) for each in found}
    assert places == {
        "all": (0, 0, 10), "_start": (1, 0, 10), "fit_tracks": (2, 0, 10), "Tree::Fill(int)": (3, 0, 9),
        "vfs_read": (4, 0, 3),
    }  # fmt: skip


def test_its_heading_says_what_is_missing() -> None:
    svg = flame_graph.flame_graph(profile())
    assert "job 12.0 on node01, on the CPU" in svg
    assert "10 samples at 99 Hz; 2 lost; 1 with a guessed stack; 1 with callers missing; 3 not looked at" in svg


def test_what_stacks_lack_on_a_kernel_is_kept_and_said_once() -> None:
    old, oldest = (f"kernel {version}: frame pointers only, no Python" for version in ("5.15", "5.10"))
    jobs = [dataclasses.replace(profile(), limits=limits) for limits in (old, oldest, old, "")]
    found = merged(pprof.decode(pprof.encode(each)) for each in jobs)
    assert flame_graph.counts(found).startswith(f"{old}; {oldest}; 40 samples at 99 Hz")
    assert record(found)["Lacks"] == [old, oldest]
    hostile = pprof.decode(pprof.encode(dataclasses.replace(profile(), limits="\x1b[31m" + "x" * 1000)))
    assert hostile.limits.isprintable() and len(hostile.limits) <= 220


def test_it_needs_no_network_and_no_other_file() -> None:
    svg = flame_graph.flame_graph(profile())
    addresses = set(re.findall(r"[a-z]+://[^\"'\s<]+", svg))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
    assert not re.search(r"href|url\(|@import|src=|eval|innerHTML", svg)


def test_narrow_places_are_left_out_and_said() -> None:
    found = profile()
    for number in range(300):
        found.add(Stack((START, Frame(f"small{number}"))), 1)
    found.add(Stack((START, FILL)), 10_000)
    svg = flame_graph.flame_graph(found)
    assert re.search(r"; 30\d places too narrow to draw", svg) and len(boxes(svg)) < 10


def test_a_huge_profile_makes_a_bounded_picture() -> None:
    found = Profile(0, 1)
    for number in range(3000):
        found.add(Stack(tuple(Frame(f"f{number % 50}.{depth}{'x' * 500}") for depth in range(40))), 1)
    shown, left_out = tree.placed(tree.tree(found), 1, 500)
    assert len(shown) == 500 and left_out > 0
    assert len(flame_graph.flame_graph(found)) < flame_graph.MOST_NODES * 2000


def test_compared_with_another() -> None:
    other = profile()
    other.stacks = {stack: count for stack, count in other.stacks.items() if READ not in stack.frames}
    found = boxes(flame_graph.flame_graph(profile(), other))
    hints = {each.get("data-n"): (each.findtext(f"{SVG}title") or "") for each in found}
    assert "30.00 % (of the other 0.00 %)" in hints["vfs_read"]
    colours = {each.get("data-n"): (each.find(f"{SVG}rect").get("fill") or "") for each in found}  # type: ignore[union-attr]
    assert colours["vfs_read"].startswith("hsl(4,85%") and colours["all"].startswith("hsl(214,0%")


def test_hostile_names_stay_text_in_every_format() -> None:
    for found in (hostile(), under(hostile(), process=True, thread=True), by_library(hostile())):
        svg = rendered(found, "svg").decode()
        root = ElementTree.fromstring(svg)  # well formed
        assert {each.tag.rpartition("}")[2] for each in root.iter()} == {
            "svg",
            "style",
            "rect",
            "text",
            "g",
            "title",
            "script",
        }
        script = root.find(f"{SVG}script")
        assert script is not None and "alert" not in (script.text or "")
        assert all(not name.startswith("on") for each in root.iter() for name in each.attrib)
        assert all(len(each.get("data-n") or "") <= flame_graph.LONGEST for each in boxes(svg))
        for line in rendered(found, "folded").decode().splitlines():
            assert line.isprintable() and re.search(r" \d+$", line)
        for form in ("json", "speedscope"):
            text = rendered(found, form).decode()
            json.loads(text)
            assert text.rstrip("\n").isprintable()
        assert pprof.decode(rendered(found, "pprof")).samples == found.samples


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_shown_of_a_name_is_one_short_line(name: str) -> None:
    assert clean(name).isprintable() and len(clean(name)) <= 6 * 500
    assert clean("naïve_fit<int>") == "naïve_fit<int>"


def test_python_has_its_place() -> None:
    assert PYTHON.library == "fit.py"


def test_a_segment_is_a_profile_that_says_what_is_hottest() -> None:
    made = segment.joined("62% f", pprof.encode(profile()))
    assert segment.hottest_of(made) == "62% f" and pprof.decode(made) == profile()
    assert gzip.decompress(made) == gzip.decompress(pprof.encode(profile()))
    long = segment.joined("\u00e9\0" * 1000, pprof.encode(profile()))
    assert len(segment.hottest_of(long)) == segment.MOST_SENTENCE and pprof.decode(long) == profile()


@given(st.binary(max_size=40))
def test_what_other_bytes_say_is_refused_or_one_line(data: bytes) -> None:
    for text in (data, b"\x1f\x8b\x08\x10123456" + data):
        try:
            assert segment.hottest_of(text).isprintable()
        except ValueError:
            continue


@pytest.mark.parametrize("most", [1 << 20, 3000, 1000, 700])
def test_segments_become_one_of_bounded_size_without_a_sample_less(most: int) -> None:
    parts = [random_profile(seed, 400) for seed in range(2)]
    parts[0].add(Stack((START, FILL), 100, "python3", "python3", is_guessed=True), 7)
    both = merged(parts)
    found = one_of([segment.joined("", pprof.encode(each)) for each in parts], most)
    told = pprof.decode(found)
    assert len(found) <= most
    assert (told.samples, told.lost, told.guessed) == (both.samples, both.lost, both.guessed)
    assert (told.broken, told.not_ours, told.begun, told.ended) == (both.broken, both.not_ours, both.begun, both.ended)
    assert (told.stacks == both.stacks) is (most == 1 << 20)
    assert segment.hottest_of(found) == sentence(both)


def test_what_is_no_segment_becomes_none() -> None:
    with pytest.raises(pprof.NoProfile):
        one_of([segment.joined("", pprof.encode(profile())), b"something"], 1 << 20)


def test_rare_stacks_are_cut_short_and_still_counted() -> None:
    found = cut_short(profile(), 1, 2)
    assert found.samples == 10 and found.guessed == 1
    assert {stack.frames: count for stack, count in found.stacks.items()} == {
        (START, PYTHON, FILL): 6, (START, PYTHON, CUT_SHORT): 3, (START, PYTHON): 1,
    }  # fmt: skip
    assert {stack.frames for stack in cut_short(profile(), 0, 0).stacks} == {(CUT_SHORT,)}


def test_coarser_profiles_have_functions_alone() -> None:
    found = Profile(0, 1)
    for offset in range(10):
        found.add(Stack((START, dataclasses.replace(FILL, offset=offset))), 2)
    assert list(coarser(found).stacks.values()) == [20]
    fewer = without_rarest(profile(), 1)
    assert (fewer.samples, fewer.lost) == (6, 6)
