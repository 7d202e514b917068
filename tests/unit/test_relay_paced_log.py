"""The relay server's log, which nobody with a token fills."""

from __future__ import annotations

from condor_joblens.relay import paced_log
from condor_joblens.relay.paced_log import LINES, REFUSALS, SECONDS, PacedLog


def made() -> tuple[PacedLog, list[str], list[float]]:
    lines, now = list[str](), [100.0]
    return PacedLog(lines.append, lambda: now[0]), lines, now


def test_a_source_has_so_many_lines_a_minute_and_a_sum() -> None:
    log, lines, now = made()
    for _ in range(LINES + 5):
        log.tell("access-point a", "carried")
    log.tell("access-point b", "carried too")
    assert (lines.count("carried"), lines[-1]) == (LINES, "carried too")
    now[0] += SECONDS
    log.tell("access-point b", "another")
    assert lines[-2:] == ["access-point a: 5 more lines in a minute", "another"]
    log.tell("access-point a", "carried")
    assert lines[-1] == "carried"


def test_refusals_have_fewer_and_leave_room_for_what_is_carried() -> None:
    log, lines, _ = made()
    for _ in range(1000):
        log.tell("access-point a", "refused", is_refusal=True)
    log.tell("access-point a", "carried")
    assert lines == ["refused"] * REFUSALS + ["carried"]
    log.sums(at_once=True)
    assert lines[-1] == f"access-point a: {1000 - REFUSALS} more lines in a minute"


def test_who_says_nothing_any_more_is_forgotten() -> None:
    log, _, now = made()
    for number in range(100):
        now[0] += paced_log.SECONDS
        log.tell(f"node {number}", "is here")
    assert len(log._sources) == 1
