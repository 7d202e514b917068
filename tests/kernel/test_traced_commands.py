"""Commands of real bash scripts are told with line, words and status, as the script itself would say them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ground import Slot, until
from traced_jobs import ALICE, SECONDS, Traces

from condor_joblens.common import readiness
from condor_joblens.control.child_output import CONTENT, FAILED, NOTICE
from condor_joblens.profiles import commands_page, traced_commands
from condor_joblens.tracing import standing_messages as messages
from condor_joblens.tracing.reading_share import FIRST_COST_SECONDS, SAVED_SECONDS
from condor_joblens.tracing.shell_trace import COUNTED_ALONE

BASH = "/bin/bash"

pytestmark = [
    pytest.mark.traces,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="commands are traced on x86-64 alone"),
]


@dataclass
class Told:
    """What a trace has said."""

    rows: list[list[Any]] = field(default_factory=list)
    summary: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    failed: str = ""

    def receive(self, channel: socket.socket) -> bool:
        """One message; False at the end."""
        assert readiness.readable([channel], SECONDS), self
        message = channel.recv(1 << 16)
        kind, said = message[:1], message[1:]
        if kind == CONTENT:
            fields = json.loads(said)
            self.rows += fields.get("commands", [])
            self.summary += fields.get("summary", [])
        elif kind == NOTICE:
            self.notices.append(said.decode())
        elif kind == FAILED:
            self.failed = said.decode()
        return bool(message)

    def lines(self) -> list[tuple[int, str, int | None]]:
        """Line, words and status of each, in the order of their begins."""
        return [(row[3], row[4], row[6]) for row in sorted(self.rows, key=lambda row: row[0])]


@contextlib.contextmanager
def script(slot: Slot, text: str, folder: Path, uid: int = ALICE, shell: str = BASH) -> Iterator[subprocess.Popen[str]]:
    """The script in the slot as its owner. It begins with a read, so that it can be traced from its second line on."""
    path = folder / "job.sh"
    path.write_text("read -r go\n" + text)

    def enter() -> None:
        slot.enter()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)

    process = subprocess.Popen(
        [shell, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=enter,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path("/tmp"):
            break
        folder.chmod(0o755)
    return tmp_path


def traced(traces: Traces, text: str, folder: Path, **asked: Any) -> tuple[Told, str, int]:
    """What is told of a script, what it wrote, and its exit code."""
    told = Told()
    with script(traces.slot, text, folder) as process:
        channel = traces.begin("bash", **asked)
        until(lambda: told.receive(channel) and any("commands of" in each for each in told.notices), SECONDS)
        out, _ = process.communicate("go\n", timeout=SECONDS)
        while told.receive(channel):
            pass
        channel.close()
    assert not told.failed, told
    return told, out, process.returncode


def begun(traces: Traces, **asked: float) -> socket.socket:
    """The channel of a trace for the job's life that has probed a shell."""
    channel = traces.begin("bash", stands=True, seconds=0, **asked)
    said = channel.recv(1 << 16)
    while not (said[:1] == messages.SUMS and messages.understood_shell(said[1:]).begun):
        said = channel.recv(1 << 16)
    return channel


def test_each_command_of_a_script_is_told_with_its_line_and_status(traces: Traces, open_folder: Path) -> None:
    text = """\
true
false
grep -q nothing /etc/hostname
for i in 1 2; do
    echo "number $i" > /dev/null
done
exit 3
"""
    told, _, code = traced(traces, text, open_folder)
    assert code == 3
    assert told.lines() == [
        (2, "true", 0),
        (3, "false", 1),
        (4, "grep -q nothing /etc/hostname", 1),
        (6, 'echo "number $i"', 0),
        (6, 'echo "number $i"', 0),
        (8, "exit 3", 3),
    ]
    assert {row[2] for row in told.rows} == {str(open_folder / "job.sh")}
    (summary,) = told.summary
    assert (summary["Commands"], summary["Failed"], summary["LostHits"], summary["NotOurs"]) == (6, 3, 0, 0)


def test_what_a_function_does_is_within_it_and_traps_and_pipes_have_their_own_words(
    traces: Traces, open_folder: Path
) -> None:
    text = """\
set -u
work() {
    local count=$1
    false || true
    return "$count"
}
work 4 || echo "said $?"
trap 'echo leaving; false' EXIT
! false
if [ -e /nowhere ]; then echo never; fi
echo one | cat > /dev/null
cat <<END > /dev/null
text of a here-document
END
eval 'true; (exit 5)'
sleep 0 &
wait $!
time false
while true; do break; done
set -e
work 0
false
echo not reached
"""
    told, out, code = traced(traces, text, open_folder)
    assert code == 1 and out.startswith("said 4\n") and out.endswith("leaving\n") and "not reached" not in out
    rows = sorted(told.rows, key=lambda row: row[0])
    assert [(row[3], row[4], row[5] if row[6] is None else row[6], row[8]) for row in rows] == [
        (2, "set -u", 0, 0),
        (8, "work 4", 4, 0),
        *_work(4),
        (8, 'echo "said $?"', 0, 0),
        (9, "trap 'echo leaving; false' EXIT", 0, 0),
        (10, "false", 0, 0),  # as $? has it, behind !
        (11, "[ -e /nowhere ]", 1, 0),
        (12, "echo one", "pipe", 0),
        (12, "cat", 0, 0),
        (13, "cat", 0, 0),
        (16, "eval 'true; (exit 5)'", 5, 0),
        (16, "true", 0, 1),
        (17, "sleep 0", "background", 0),
        (18, "wait $!", 0, 0),
        (19, "false", 1, 0),
        (20, "true", 0, 0),
        (20, "break", 0, 0),
        (21, "set -e", 0, 0),
        (22, "work 0", 0, 0),
        *_work(0),
        (23, "false", 1, 0),
        (1, "echo leaving", 0, 0),
        (1, "false", "trap", 0),
    ]


def _work(status: int) -> list[tuple[int, str, int, int]]:
    """What the function of that name does."""
    return [(4, "local count=$1", 0, 1), (5, "false", 1, 1), (5, "true", 0, 1), (6, 'return "$count"', status, 1)]


def test_subshells_are_seen_from_their_first_command_if_one_probe_is_for_all(traces: Traces, open_folder: Path) -> None:
    text = """\
x=$(true; echo inner)
( false; exit 7 )
true | { read -r nothing; }
bash -c 'false; true' name
"""
    told, _, _ = traced(traces, text, open_folder, for_all=True)
    lines = {(row[2].rpartition("/")[2], row[3], row[4], row[6]) for row in told.rows}
    assert (
        {
            ("job.sh", 2, "echo inner", None),  # bash does not say how it ended: it leaves at once
            ("job.sh", 3, "false", 1),
            ("job.sh", 3, "exit 7", 7),
            ("job.sh", 4, "read -r nothing", 1),
            ("job.sh", 5, "bash -c 'false; true' name", 0),
            ("name", 0, "false", 1),
        }
        <= {each if each[0] != "name" else (each[0], 0, *each[2:]) for each in lines}
    )
    assert told.summary[0]["ForAll"] and told.summary[0]["Shells"] == 5


def test_a_loop_of_builtins_is_switched_off(traces: Traces, open_folder: Path) -> None:
    told, out, code = traced(traces, "for ((i = 0; i < 200000; i++)); do :; done\necho done\n", open_folder, share=1.0)
    assert (out, code) == ("done\n", 0)
    assert told.summary[0]["SwitchedOff"] and told.summary[0]["Commands"] < 50_000
    assert any("executes too many commands" in each for each in told.notices)


def test_three_scripts_beyond_their_share_are_counted_exactly(traces: Traces, open_folder: Path) -> None:
    """Each may have two hundred commands told. Of what is told, the status is right where there is one."""
    text = "f() { for i in {1..60}; do true; false; done; return 4; }\nf\necho done\nexit 5\n"
    folders = [open_folder / str(number) for number in range(3)]
    asked = {"reading": 200 * FIRST_COST_SECONDS / SAVED_SECONDS, "for_all": True}
    with contextlib.ExitStack() as stack:
        for folder in folders:
            folder.mkdir()
        scripts = [stack.enter_context(script(traces.slot, text, folder)) for folder in folders]
        all_told, channels = [Told() for _ in scripts], [traces.begin("bash", **asked) for _ in scripts]
        for told, channel in zip(all_told, channels):
            stack.callback(channel.close)
            while not any("commands of" in each for each in told.notices):
                told.receive(channel)
        ended = [(process.communicate("go\n", timeout=SECONDS), process.returncode) for process in scripts]
        for told, channel in zip(all_told, channels):
            while told.receive(channel):
                pass
    assert ended == [(("done\n", None), 5)] * 3
    # what waits for others to be ready costs as well, so that a share may be used up before its script begins
    assert any(told.rows for told in all_told)
    for told in all_told:  # each is of all three scripts
        (summary,) = told.summary
        assert (summary["Commands"], summary["LostHits"]) == (3 * (120 + 4), 0), summary
        assert len(told.rows) == summary["Commands"] - summary["CountedAlone"] < 300
        assert COUNTED_ALONE in told.notices
        assert {(row[4], row[6]) for row in told.rows} <= {
            ("true", 0), ("true", None), ("false", 1), ("false", None), ("return 4", 4), ("return 4", None),
            ("f", 4), ("f", None), ("echo done", 0), ("echo done", None), ("exit 5", 5), ("exit 5", None),
        }  # fmt: skip


def test_a_thousand_lines_are_told_and_what_is_written_is_the_same(traces: Traces, open_folder: Path) -> None:
    lines = [f"echo line {number}; test {number} -lt 500" for number in range(1000)]
    text = "".join(f"{line}\n" for line in lines)
    # it is not to be switched off, on a busy machine either, on which hits seem to cost more
    told, out, code = traced(traces, text, open_folder, share=100.0)
    plain = subprocess.run([BASH, str(open_folder / "job.sh")], input="go\n", capture_output=True, text=True)
    assert (out, code) == (plain.stdout, plain.returncode)
    truth: list[tuple[int, str, int]] = []
    for number, line in enumerate(lines, 2):
        first, second = line.split("; ")
        truth += [(number, first, 0), (number, second, int(number >= 502))]
    assert told.summary[0]["LostHits"] == 0 and told.lines() == truth


def test_words_have_no_secrets_and_no_escapes(traces: Traces, open_folder: Path) -> None:
    text = "true --password hunter2hunter2\ntrue $'\\e[2J' '\x1b[2J'\n: " + "x" * 3000 + "\n"
    told, _, _ = traced(traces, text, open_folder)
    shown = [row[4] for row in sorted(told.rows, key=lambda row: row[0])]
    assert shown[0] == "true --password ***" and "\x1b" not in shown[1] and "\\x1b[2J" in shown[1]
    assert len(shown[2]) < 400 and shown[2].endswith("...")


def test_who_is_not_the_jobs_owner_is_not_looked_at(traces: Traces, open_folder: Path) -> None:
    """One of root's shells in the job's cgroup, as a set-user-id program may start one."""
    told = Told()
    other = open_folder / "other"
    other.mkdir()
    with script(traces.slot, "true\n", open_folder) as process:
        channel = traces.begin("bash", for_all=True)
        until(lambda: told.receive(channel) and any("commands of" in each for each in told.notices), SECONDS)
        with script(traces.slot, "echo secret\n", other, uid=0) as root:
            root.communicate("go\n")
        process.communicate("go\n")
        while told.receive(channel):
            pass
        channel.close()
    assert told.lines() == [(2, "true", 0)]
    assert told.summary[0]["NotOurs"] > 0


def test_another_shell_is_said_in_one_line(traces: Traces, open_folder: Path) -> None:
    told = Told()
    with script(traces.slot, "true\n", open_folder, shell="/bin/dash") as process:
        channel = traces.begin("bash", stands=True, seconds=0)
        until(lambda: told.receive(channel) and told.notices, SECONDS)
        process.communicate("go\n")
        channel.close()
    assert told.notices == ["/usr/bin/dash: of this shell the programs that it starts are known, and not its commands"]


def test_a_trace_for_a_jobs_life_keeps_lines_and_the_last_commands(traces: Traces, open_folder: Path) -> None:
    told, parts, kept, sums = Told(), b"", [], []
    text = "for i in 1 2 3; do\ngrep -q x /dev/null\ndone\nexit 4\n"
    with script(traces.slot, text, open_folder) as process:
        channel = begun(traces)
        process.communicate("go\n")
        while said := channel.recv(1 << 16):
            if said[:1] == messages.PART:
                parts += said[1:]
            elif said[:1] == messages.KEEP:
                kept.append(traced_commands.decode(parts))
                parts = b""
            elif said[:1] == messages.SUMS:
                sums.append(messages.understood_shell(said[1:]))
        channel.close()
    assert (sums[-1].commands, sums[-1].failed) == (4, 4)
    lines = {(each.line, each.text): (each.runs, each.failed) for each in kept[-1].lines}
    assert lines == {(3, "grep -q x /dev/null"): (3, 3), (5, "exit 4"): (1, 1)}
    assert [each.status for each in kept[-1].commands] == [1, 1, 1, 4]
    assert commands_page.table(kept[-1])[0].endswith("4 of 1 shells, 4 failed")
    assert not told.failed


def links(traces: Traces) -> int:
    """How many the traces have."""
    starter = traces.starter
    count = 0
    for pid in Path(f"/proc/{starter}/task/{starter}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError):
            for each in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    count += "bpf_link" in str(each.readlink())
    return count


def test_shells_that_have_ended_leave_no_probe(traces: Traces, open_folder: Path) -> None:
    """Each hit goes through all links that the node has on the same bash."""
    others = [open_folder / str(number) for number in range(3)]
    with script(traces.slot, "true\n", open_folder) as first:
        channel = begun(traces)
        for other in others:
            other.mkdir()
            with script(traces.slot, "true\n", other) as second:
                until(lambda: links(traces) == 2, SECONDS)
                second.communicate("go\n")
            until(lambda: links(traces) == 1, SECONDS)
        first.communicate("go\n")
        channel.close()
    assert first.returncode == 0


def test_a_bash_that_was_overwritten_is_not_probed_where_its_functions_were(traces: Traces, open_folder: Path) -> None:
    bash, told = open_folder / "bash", Told()
    bash.write_bytes(Path(BASH).read_bytes())
    bash.chmod(0o755)
    lasting = subprocess.Popen(["sleep", "1000"], preexec_fn=traces.slot.enter)
    try:
        with script(traces.slot, "true\n", open_folder, shell=str(bash)) as first:
            channel = begun(traces)
            first.communicate("go\n")
        with open(bash, "ab") as file:
            file.write(b"and more")
        with script(traces.slot, "exit 3\n", open_folder, shell=str(bash)) as second:
            until(lambda: told.receive(channel) and told.notices, SECONDS)
            second.communicate("go\n")
        channel.close()
    finally:
        lasting.kill()
        lasting.wait()
    assert second.returncode == 3
    assert told.notices == [f"{bash} was overwritten: it is not traced any more (what replaces it by a rename is)"]


def test_a_program_that_has_the_names_of_a_bash_alone_harms_nobody(traces: Traces, open_folder: Path) -> None:
    """Wild pointers, a list without an end, words without an end, and what a terminal would take as an order."""
    bash, told = open_folder / "bash", Told()
    source = Path(__file__).with_name("false_bash.c")
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-rdynamic", "-o", bash, source], check=True)
    with script(traces.slot, "", open_folder, shell=str(bash)) as process:
        channel = traces.begin("bash")
        until(lambda: told.receive(channel) and any("commands of" in each for each in told.notices), SECONDS)
        out, _ = process.communicate("go\n", timeout=SECONDS)
        while told.receive(channel):
            pass
        channel.close()
    assert (out, process.returncode, told.failed) == ("lives\n", 0, "")
    commands = [traced_commands.command(*row) for row in told.rows]
    shown = [commands_page.command_line(each) for each in commands]
    assert {7, 8, 9} <= {each.line for each in commands} and all(each.isprintable() for each in shown)
    assert max(len(each.text) for each in commands) < 1000 and told.summary[0]["LostHits"] == 0
