"""A job's time line: what it is put together from, as a page and as a picture, and what it makes of hostile jobs."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from timeline_samples import BEGUN, HOSTILE, material
from traced_samples import function

from condor_joblens.cli import timeline_page
from condor_joblens.cli.terminal import Style
from condor_joblens.profiles import timeline, timeline_picture, traced_calls
from condor_joblens.profiles.last_events import Event
from condor_joblens.profiles.timeline import Curve, Life, Material, Timeline

SVG = "{http://www.w3.org/2000/svg}"


def page(made: Timeline, width: int = 110) -> list[str]:
    return timeline_page.page(made, Style(width))


def elements(picture: str) -> Counter[str]:
    return Counter(each.tag.removeprefix(SVG) for each in ElementTree.fromstring(picture).iter())


def test_each_process_has_what_it_called_opened_and_connected_to() -> None:
    python, copy = timeline.made_of(material()).processes
    assert (python.pid, python.program, python.ending, python.is_begin_known) == (71, "python3", "status 1", True)
    assert (copy.pid, copy.parent, copy.depth, copy.ending, copy.is_begin_known) == (80, 71, 1, "status 54", True)
    assert copy.commands[0].text.startswith("xrdcp root://")
    assert Counter(mark.kind for mark in python.marks) == {"open": 40, "failed": 6, "raised": 1}
    assert [mark.kind for mark in copy.marks] == ["connect", "refused"]
    assert [(thread.tid, len(thread.bars)) for thread in python.threads] == [(71, 63), (75, 5)]


def test_a_page_has_a_row_for_each_of_them() -> None:
    lines = page(timeline.made_of(material()))
    by_name = {line[:26].strip(): line[26:] for line in lines if line.strip()}
    assert "status 1" in by_name["71 python3"] and "!" in by_name["71 python3"]
    assert "32 calls, 6 s, 2 !" in by_name["fit (fit.py:12)"]
    assert "40 opened, 6 failed" in by_name["files"]
    assert "1 opened, 1 refused" in by_name["connections"] and by_name["connections"].count("!") == 1
    assert "0.5 to 1.7 cores" in by_name["CPU"] and "40 MB/s" in by_name["I/O by calls"]
    assert any("xrdcp" in line and "ECONNREFUSED: 192.0.2.8:1094" in line for line in lines)
    assert lines[-1] == "No sockets: none was opened."


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_page_fits_the_terminal(width: int) -> None:
    assert max(map(len, page(timeline.made_of(material()), width))) <= max(width, timeline_page.LEAST_WIDE)


def test_a_number_that_comes_again_is_another_process() -> None:
    lives = [Life(5, 100.0, 101.0, "first", 0, "status 0"), Life(5, 103.0, 104.0, "second", 0, "SIGKILL")]
    events = [Event(when, 5, name, "open", about=name) for when, name in ((100.5, "first"), (103.5, "second"))]
    first, second = timeline.made_of(Material("1.0", lives=lives, events=events)).processes
    assert [(each.program, each.marks[0].text) for each in (first, second)] == [("first",) * 2, ("second",) * 2]
    assert (first.ending, second.ending) == ("status 0", "SIGKILL")


def test_what_two_sources_tell_is_there_once_and_a_process_that_lives_goes_on() -> None:
    events = [Event(100.02 + more, 5, "cat", "exec", about="cat x") for more in (0.0, 0.001)]
    (process,) = timeline.made_of(Material("1.0", lives=[Life(5, 100.0, None)], events=events, looked=110.0)).processes
    assert len(process.commands) == 1 and process.is_alive and process.ended == 110.0


def test_a_part_of_the_time_has_that_alone() -> None:
    made = timeline.made_of(material(), BEGUN + 5.0, BEGUN + 6.0)
    python, copy = made.processes
    assert [mark.kind for mark in copy.marks] == ["connect"] and 3 < len(python.marks) < 9
    assert all(BEGUN + 5.0 <= at <= BEGUN + 7.0 for curve in made.curves for at, _ in curve.points)
    with pytest.raises(ValueError, match="nothing is known"):
        timeline.made_of(Material("1.0"))


def test_hostile_names_are_text_everywhere() -> None:
    found = material()
    found.job, found.node = HOSTILE, HOSTILE
    found.events += [Event(BEGUN + 1, 90, HOSTILE, what, HOSTILE, HOSTILE, HOSTILE) for what in ("exec", "open", "x")]
    found.curves.append(Curve(HOSTILE, HOSTILE, [(BEGUN + 1, 1.0)]))
    found.remarks.append(HOSTILE)
    told = {"Begun": BEGUN, "Ended": BEGUN + 10, "Functions": [function(HOSTILE)]}
    call = [BEGUN + 1, 90, 90, 0, [HOSTILE], "returned", 0.5, HOSTILE, 0]
    found.traces.append(traced_calls.decode(traced_calls.encode(told, [call])))
    made = timeline.made_of(found)
    assert all(line.isprintable() for line in page(made))
    picture = timeline_picture.picture(made)
    assert set(elements(picture)) == {"svg", "style", "rect", "text", "g", "path", "title", "line", "script"}
    assert elements(picture)["script"] == 1 and "\x1b" not in picture and "\u202e" not in picture


def test_a_job_with_too_much_is_bounded_and_says_what_is_left_out() -> None:
    many = Material("1.0", lives=[Life(pid, pid * 0.001 + 1, pid * 0.001 + 2) for pid in range(1, 5000)])
    many.events = [Event(1 + number / 1e4, number % 40 + 1, "a", "open", about="/x") for number in range(60_000)]
    many.events += [Event(3.0, 1, "a", "failed", about="/rare")]
    calls = [[1 + number / 1e3, 1, number % 30, 0, None, "returned", 0.001, None, 900] for number in range(2000)]
    told = {"Begun": 1.0, "Ended": 5.0, "Functions": [function("f")]}
    many.traces = [traced_calls.decode(traced_calls.encode(told, calls))] * 10
    many.curves = [Curve("CPU", "cores", [(1 + at / 1e5, float("nan") if at == 7 else 1e300) for at in range(100_000)])]
    made = timeline.made_of(many)
    assert len(made.processes) == timeline.MOST_PROCESSES and len(made.processes[0].threads) == timeline.MOST_THREADS
    assert sum(len(each.marks) for each in made.processes) <= timeline.MOST_MARKS + timeline.MOST_PROCESSES
    assert any(mark.text == "/rare" for mark in made.processes[0].marks)
    assert any("more processes" in each for each in made.remarks) and any(
        "are not drawn" in each for each in made.remarks
    )
    assert len(timeline_picture.picture(made)) < 8 << 20 and len(page(made)) < 200


@pytest.mark.parametrize("seconds", [1e-3, 0.02, 1.0, 9.7, 100.0, 4000.0, 90_000.0, 4e6])
def test_an_axis_has_some_round_times(seconds: float) -> None:
    begun = 1_764_140_581.2571
    found = timeline_picture.ticks(begun, begun + seconds, 8)
    assert 2 <= len(found) <= 8 and all(begun <= at <= begun + seconds for at in found)
    step = found[1] - found[0]
    assert len({timeline_picture.tick_label(at, step) for at in found}) == len(found) or step >= 43_200


def test_circles_of_parents_end() -> None:
    lives = [Life(pid, 1.0, 2.0, "a", other) for pid, other in ((1, 2), (2, 1), (3, 3), (4, 9))]
    assert sorted(each.pid for each in timeline.made_of(Material("1.0", lives=lives)).processes) == [1, 2, 3, 4]
