"""Commands of shells: put together from hits, what is asked for, and what is kept of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from condor_joblens.policy import trace_request
from condor_joblens.profiles import commands_page, traced_calls, traced_commands
from condor_joblens.profiling.elf import Elf
from condor_joblens.tracing import shell_file
from condor_joblens.tracing.commands import COMMAND, SHELL_END, SIMPLE, Command, CommandHit, Commands, End
from condor_joblens.tracing.exits import Unreadable
from condor_joblens.tracing.lines import Lines

OUTER, INNER = 2000, 1000


def hit(time: int, stack: int, text: bytes = b"", status: int = 0, **more: Any) -> CommandHit:
    has = {
        "kind": COMMAND,
        "function": 0,
        "pid": 7,
        "image": 1,
        "type": SIMPLE if text else 0,
        "flags": 0,
        "trap": 0,
        "how": 0,
    }
    has.update(more)
    return CommandHit(time_ns=time, stack=stack, status=status, line=time, text=text, **has)


def told(commands: list[Command]) -> list[tuple[bytes, End, int | None, int | None]]:
    return [(each.hit.text, each.end, each.status, each.took_ns) for each in commands]


def test_a_command_ends_when_its_shell_begins_one_that_is_not_within_it() -> None:
    shells = Commands()
    assert shells.take(hit(1, OUTER, b"f\0")) == []
    assert shells.take(hit(2, INNER, b"true\0")) == []
    assert told(shells.take(hit(5, INNER, b"return\0"))) == [(b"true\0", End.ENDED, 0, 3)]
    ended = shells.take(hit(9, OUTER, b"false\0", status=4))
    assert told(ended) == [(b"return\0", End.ENDED, 4, 4), (b"f\0", End.ENDED, 4, 8)]
    assert [each.depth for each in ended] == [1, 0]
    assert told(shells.take(hit(10, 0, status=1, kind=SHELL_END))) == [(b"false\0", End.ENDED, 1, 1)]
    assert shells.take(hit(11, 0, status=1, kind=SHELL_END)) == [] and shells.shells == 1


@pytest.mark.parametrize(("how", "end"), [(1, End.IN_BACKGROUND), (4, End.IN_PIPE)])
def test_of_what_its_shell_does_not_wait_for_nothing_more_is_known(how: int, end: End) -> None:
    assert told(Commands().take(hit(1, OUTER, b"sleep\0", how=how))) == [(b"sleep\0", end, None, None)]


def test_what_is_begun_once_more_within_and_what_break_skips_is_not_told() -> None:
    shells = Commands()
    for flags, how in ((0x80, 0), (0x2, 0), (0, 8)):
        shells.take(hit(1, OUTER, b"once\0", flags=flags, how=how))
    assert shells.take(hit(2, OUTER)) == []


def test_a_trap_leaves_the_status_as_it_was() -> None:
    shells = Commands()
    shells.take(hit(1, OUTER, b"false\0"))
    shells.take(hit(2, INNER, b"echo\0", trap=65))
    ended = told(shells.take(hit(3, OUTER, b"true\0", status=1)))
    assert ended == [(b"echo\0", End.IN_TRAP, None, 1), (b"false\0", End.ENDED, 1, 2)]


def test_a_shell_that_becomes_another_program_or_is_killed_does_not_say_how_its_command_ended() -> None:
    shells = Commands()
    shells.take(hit(1, OUTER, b"exec\0"))
    assert told(shells.take(hit(2, 50, b"true\0", image=2))) == [(b"exec\0", End.NOT_SEEN, None, None)]
    assert told(shells.forget(shells.all_pids())) == [(b"true\0", End.NOT_SEEN, None, None)]
    assert shells.all_pids() == []


def test_shells_of_one_bash_are_forgotten_and_those_of_another_go_on() -> None:
    shells = Commands()
    shells.take(hit(1, OUTER, b"true\0"))
    shells.take(hit(2, OUTER, b"false\0", pid=8, image=2, function=1))
    assert (shells.pids_of(0), shells.pids_of(1)) == ([7], [8])


def test_a_bash_has_what_is_needed_and_another_program_is_refused() -> None:
    with open("/bin/bash", "rb") as file:
        (function,) = shell_file.find(Elf(file.fileno())).functions
    assert [place.kind for place in function.places] == [COMMAND, SHELL_END, SHELL_END, SHELL_END]
    status, trap, breaking, continuing, script, both = function.variables
    assert status and trap and script and (both or (breaking and continuing))
    with open("/bin/true", "rb") as file, pytest.raises(Unreadable, match="its commands are not seen"):
        shell_file.find(Elf(file.fileno()))


def test_what_is_asked_for() -> None:
    asked = trace_request.of_text("bash; reco:fit; python:raises")
    assert asked.shell and asked.functions == ("reco:fit",) and asked.python_raises and not asked.refused
    assert "write bash" in trace_request.of_text("sh:execute_command_internal").refused


def test_secrets_are_left_out_also_where_the_line_is_cut() -> None:
    lines = Lines()
    shown = lines.of(
        [(b"curl\0--password\0hunter2hunter2\0", False), (b"echo\0AKIAIOSFOD\0", True), (b"a\x1b[2J\0", False)]
    )
    assert shown == ["curl --password ***", "echo ...", "a\\x1b[2J"]


KEPT = {
    "Begun": 1.0, "Ended": 2.0, "Notes": ["a note\x1b"], "Folded": 0,
    "Sums": {**dict.fromkeys(traced_commands.COUNTS, 3), "Seconds": 0.5},
    "Probed": [
        {"File": "/bin/bash", "From": 1.0, "Processes": 1, "UnseenSeconds": 0.25, "ForAll": False, "LostHits": 2,
         "NotOurs": 1, "SwitchedOff": True, "CoveredSeconds": 1.0, "New": 1}
    ],
    "Lines": [["/x/job.sh", 12, "grep \x1b[2J", 3, 1, 0.5, 0.25, "new"]],
}  # fmt: skip
LAST = [[1.5, 7, "/x/job.sh", 12, "grep x", "ended", 1, 0.25, 0, "new"]]


def test_what_is_kept_is_read_and_shown_without_escapes() -> None:
    kept = traced_commands.decode(traced_commands.encode(KEPT, LAST))
    page = "\n".join(commands_page.table(kept))
    assert "\x1b" not in page and "job.sh:12" in page and "switched off" in page and "2 commands were lost" in page
    assert "\x1b" not in json.dumps(commands_page.record(kept))
    assert commands_page.command_line(kept.commands[0]).endswith("7  job.sh:12  grep x  exit 1  250.0 ms")


def test_it_is_no_larger_than_an_artifact_may_be() -> None:
    many = {**KEPT, "Lines": [["s", number, "x" * 3000, 1, 0, 0.1, 0.1] for number in range(1000)]}
    content = traced_commands.encode(many, [[1.5, 7, "s", 1, "y" * 2000, "ended", 0, 0.1, 0]] * 2000)
    kept = traced_commands.decode(content)
    assert len(content) <= traced_commands.MOST_BYTES and kept.folded + len(kept.lines) == 1000 and kept.commands


@pytest.mark.parametrize(
    "wrong",
    [
        {"Lines": [["s", "12", "x", 1, 0, 0.1, 0.1]]},
        {"Sums": {}},
        {"Begun": float("nan")},
        {"Probed": [{}]},
        {"LastCommands": [[1.5, -7, "s", 1, "y", "ended", 0, 0.1, 0]]},
        {"Version": 2},
        {"Format": "joblens-trace"},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    told = {**json.loads(traced_commands.encode(KEPT, LAST)), **wrong}
    with pytest.raises(ValueError):
        traced_commands.decode(json.dumps(told).encode())
    with pytest.raises(ValueError):
        traced_calls.decode(json.dumps({**told, "Format": "joblens-commands"}).encode())


def test_what_ended_while_commands_were_counted_alone_has_no_status() -> None:
    shells = Commands()
    shells.take(hit(1, OUTER, b"f\0"))
    shells.take(hit(2, INNER, b"true\0"))
    assert told(shells.take(hit(9, INNER, b"false\0", status=3, untold=7))) == [(b"true\0", End.NOT_SEEN, None, None)]
    ended = shells.take(hit(12, OUTER, b"exit\0", status=1, untold=7))
    assert told(ended) == [(b"false\0", End.ENDED, 1, 3), (b"f\0", End.ENDED, 1, 11)]
    assert told(shells.take(hit(15, 0, status=2, kind=SHELL_END, untold=8))) == [(b"exit\0", End.NOT_SEEN, None, None)]


def test_a_list_that_was_passed_ends_what_it_is_not_within() -> None:
    """`f; { true; }`: the group has begun another command at once, and was not told."""
    shells = Commands()
    shells.take(hit(1, OUTER, b"f\0"))
    assert told(shells.take(hit(5, INNER, b"true\0", status=4, top=OUTER))) == [(b"f\0", End.ENDED, 4, 4)]


def test_commands_that_were_counted_alone_are_said() -> None:
    many = {**KEPT, "Sums": {**KEPT["Sums"], "CountedAlone": 7}}
    kept = traced_commands.decode(traced_commands.encode(many, LAST))
    assert "7 of the commands were counted alone" in "\n".join(commands_page.table(kept))
    del many["Sums"]["CountedAlone"]
    kept = traced_commands.decode(traced_commands.encode(many, LAST))
    assert kept.counts["CountedAlone"] == 0 and "counted alone" not in "\n".join(commands_page.table(kept))
