"""The flight recorder's artifact: what a copy of rings becomes, without secrets, and what a reader believes of one."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import re
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from agent_node import OWNER, Made, make
from condor_joblens.tracer._bpf import lib
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.agent import flight_recorder
from condor_joblens.agent.control_socket import CommandNode
from condor_joblens.agent.evidence import Evidence
from condor_joblens.agent.flight_recorder import FlightRecorder, NotTagged
from condor_joblens.agent.lifecycle import process_events, run_end
from condor_joblens.agent.output import run_artifacts
from condor_joblens.agent.owner_commands import SAVED_OF_A_USER, OwnerCommands
from condor_joblens.cli import before_death
from condor_joblens.cli.terminal import Style
from condor_joblens.common import own_process
from condor_joblens.common.redact import Redactor
from condor_joblens.control.verbs import Refused
from condor_joblens.jobs.death_sentence import Raised
from condor_joblens.model.metrics import text
from condor_joblens.profiles import last_events
from condor_joblens.profiles.last_events import Coverage, Event
from condor_joblens.shm.artifacts import ArtifactReader, ArtifactWriter
from condor_joblens.shm.ring import EventWriter
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.sensors.recorder import NODE_BYTES, Recorder, Recording
from condor_joblens.tracing import recorder_reader

COVERAGE = Coverage(1000.0, "death", "exit code 3", 950.0, 960.0, 999.5, 12, 0, 2)


def recorded(kind: int, text: bytes = b"", subject: int = 0, **members: int) -> np.ndarray:
    record: np.ndarray = np.zeros(1, map_layout.RECORDED)
    record["kind"], record["subject"], record["text"], record["text_bytes"] = kind, subject, text, len(text)
    record["pid"], record["program"], record["time_ns"] = 12, b"reco", 5_000_000_000
    for name, value in members.items():
        record[name] = value
    return record


def in_words(*records: np.ndarray) -> list[Event]:
    return recorder_reader.events_of(np.concatenate(records), 990.0, Redactor(10.0))


# -- what a copy becomes ------------------------------------------------------------------------------------------


def test_each_kind_of_event_in_words() -> None:
    path, name = int(lib.RECORDED_PATH), int(lib.RECORDED_NAME)
    address = (2).to_bytes(2, sys.byteorder) + (443).to_bytes(2, "big") + bytes([192, 0, 2, 0])
    found = in_words(
        recorded(lib.RECORDED_FAILED, b"/data/x", path, value=2, other=257),
        recorded(lib.RECORDED_EXEC, b"/bin/cat\0/etc/hostname\0", int(lib.RECORDED_ARGUMENTS)),
        recorded(lib.RECORDED_SIGNAL, b"condor_starter\0\0", name, value=signal.SIGTERM, other=77),
        recorded(lib.RECORDED_SIGNAL, value=signal.SIGSEGV),
        recorded(lib.RECORDED_OPEN, b"/data/y", path, value=5),
        recorded(lib.RECORDED_CONNECT, address, int(lib.RECORDED_ADDRESS)),
        recorded(lib.RECORDED_EXIT, value=signal.SIGSEGV | 0x80),
        recorded(lib.RECORDED_EXIT, value=3 << 8, pid=13),
        recorded(lib.RECORDED_FAILED, b"", int(lib.RECORDED_UNREAD), value=14, other=257),
        recorded(lib.RECORDED_CALL, b"fit(int)", name),
        recorded(lib.RECORDED_RETURN, b"fit(int)", name),
        recorded(lib.RECORDED_COMMAND, b"xrdcp\0a b\0", int(lib.RECORDED_ARGUMENTS), value=14, other=1),
        recorded(lib.RECORDED_THROW, b"St13runtime_error".ljust(80, b"\0") + b"no run", int(lib.RECORDED_TYPE)),
        recorded(lib.RECORDED_THROW, b"7\x1b[2J".ljust(80, b"\0") + b"\0left", int(lib.RECORDED_TYPE)),
    )
    assert [(event.what, event.result, event.about) for event in found] == [
        ("failed", "ENOENT", "/data/x"),
        ("exec", "", "/bin/cat /etc/hostname"),
        ("signal", "SIGTERM from condor_starter (77)", ""),
        ("signal", "SIGSEGV", ""),
        ("open", "descriptor 5", "/data/y"),
        ("connect", "", "192.0.2.0:443"),
        ("exit", "SIGSEGV, core dumped", ""),
        ("exit", "status 3", ""),
        ("failed", "EFAULT", "(not resident)"),
        ("call", "", "fit(int)"),
        ("return", "", "fit(int)"),
        ("command", "line 14, after status 1", "xrdcp a b"),
        ("throw", "no run", "std::runtime_error"),
        ("throw", "", "7\\x1b[2J"),
    ]
    assert (found[0].time, found[0].pid, found[0].program) == (995.0, 12, "reco")
    assert os.uname().machine != "x86_64" or found[0].call == "openat"


def test_the_end_of_a_process_is_told_once() -> None:
    assert len(in_words(*[recorded(lib.RECORDED_EXIT, value=256)] * 3)) == 1


def test_an_unknown_kind_is_left_out() -> None:
    assert in_words(recorded(200)) == []


def test_secrets_are_not_told_and_nothing_can_fool_a_terminal() -> None:
    arguments = b"/usr/bin/curl\0--token\0dGhpc2lzYXNlY3JldA\0\x1b[2J\0"
    (event,) = in_words(recorded(lib.RECORDED_EXEC, arguments, int(lib.RECORDED_ARGUMENTS)))
    assert "dGhpc2lzYXNlY3JldA" not in event.about and "\x1b" not in event.about
    (event,) = in_words(
        recorded(lib.RECORDED_OPEN, b"/tmp/password=geheim\xff\n", int(lib.RECORDED_PATH), program=b"\x1b]0;x")
    )
    assert "geheim" not in event.about and event.about.isprintable() and event.program.isprintable()


def test_what_there_is_no_time_for_is_not_shown() -> None:
    found = recorder_reader.events_of(
        recorded(lib.RECORDED_OPEN, b"/data/x", int(lib.RECORDED_PATH)), 0.0, Redactor(-1.0)
    )
    assert "/data/x" not in found[0].about


@given(st.binary(max_size=2048))
def test_any_bytes_of_a_ring_become_an_artifact(data: bytes) -> None:
    told = {"coverage": dataclasses.asdict(COVERAGE), "epoch": 0.0}
    made = recorder_reader.made_of(recorder_reader.head_of(told) + data)
    coverage, events = last_events.decode(made)
    assert coverage == COVERAGE and all(event.about.isprintable() for event in events)


def test_a_unix_socket_is_called_so() -> None:
    assert recorder_reader.address(int(socket.AF_UNIX).to_bytes(2, sys.byteorder) + b"/run/x") == "a unix socket"


@given(st.binary(max_size=176))
def test_any_address_is_told(raw: bytes) -> None:
    assert recorder_reader.address(raw).isprintable()


# -- the artifact -------------------------------------------------------------------------------------------------


def test_an_artifact_is_read_as_it_was_made() -> None:
    events = [Event(999.0, 12, "reco", "failed", "openat", "ENOENT", "/data/x"), Event(999.5, 12, "reco", "exit")]
    assert last_events.decode(last_events.encode(COVERAGE, events)) == (COVERAGE, events)


def test_of_more_than_an_artifact_may_have_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [Event(990.0 + at / 1000, 12, "reco", "open", "", "", os.urandom(50).hex()) for at in range(5000)]
    for bound in ("MOST_KEPT_BYTES", "MOST_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(last_events, bound, 200_000)
            made = last_events.encode(COVERAGE, events)
            coverage, found = last_events.decode(made)
        assert len(made) <= 200_000 and 500 < len(found) < 5000 and found == events[-len(found) :]
        assert coverage.overwritten == COVERAGE.overwritten + 5000 - len(found)
        assert coverage.rare_since == found[0].time and coverage.frequent_since == COVERAGE.frequent_since


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        gzip.compress(b"[]"),
        gzip.compress(b"{}"),
        gzip.compress(json.dumps({"Version": 2}).encode()),
        gzip.compress(json.dumps({"Version": 1, "Events": []}).encode()),
        gzip.compress(b"[" * 100_000),
        gzip.compress(bytes(last_events.MOST_BYTES + 1)),
        last_events.encode(COVERAGE, [])[:-9],
        last_events.encode(dataclasses.replace(COVERAGE, tagged=float("nan")), []),
        last_events.encode(COVERAGE, [Event("soon", 1, "x", "exit")]),  # type: ignore[arg-type]
    ],
    ids=range(11),
)
def test_what_is_no_artifact_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="it is"):
        last_events.decode(content)


def test_a_reader_escapes_once_more() -> None:
    _, (event,) = last_events.decode(last_events.encode(COVERAGE, [Event(1.0, 1, "\x1b[2J", "exit")]))
    assert event.program.isprintable()


# -- the page -----------------------------------------------------------------------------------------------------


def test_the_page_says_how_many_seconds_it_covers() -> None:
    events = [Event(998.5, 12, "reco", "failed", "openat", "ENOENT", "/data/x")]
    lines = before_death.page(COVERAGE, events, Style(110))
    page = " ".join(" ".join(lines).split())
    assert "exit code 3" in page and "of the 40.000 s before that" in page and "of the 0.500 s before" in page
    assert lines[-1] == "    -1.500 s       12 reco            openat failed, ENOENT: /data/x"
    assert "2 events of processes with other credentials" in page
    assert last_events.record(COVERAGE, events)["RareSeconds"] == 40.0


def test_the_page_of_a_recording_that_is_whole_says_so_in_one_sentence() -> None:
    whole = dataclasses.replace(COVERAGE, since=960.0, rare_since=960.0, frequent_since=960.0)
    page = " ".join(before_death.page(whole, [], Style(110)))
    assert f"Events since recording began, {whole.tagged - 960.0:.3f} s before that." in page
    assert "Failures, programs" not in page and "Recording began" not in page


def test_the_page_of_many_events_shows_the_last() -> None:
    events = [Event(900.0 + at / 10, 12, "reco", "open", "", "", f"/{at}") for at in range(500)]
    page = before_death.page(COVERAGE, events, Style(110))
    assert page[-1].endswith(": /499") and len(page) < 80 and any("440 earlier ones" in line for line in page)


# -- joblensd -----------------------------------------------------------------------------------------------------


class Readers:
    """Starts the reader as a thread of this process would run it: at once, on what it is sent."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self.answer, self.channels = answer, []  # type: ignore[var-annotated]
        self.charges: list[Callable[[float], None]] = []

    def start(self, channel: socket.socket, charge: Callable[[float], None]) -> MagicMock:
        self.channels.append(channel.dup())
        self.charges.append(charge)
        return MagicMock()

    def close(self) -> None:
        for channel in self.channels:
            channel.close()

    def serve(self) -> None:
        with self.channels.pop(0) as channel:
            _, given, _, _ = socket.recv_fds(channel, 64, 1)
            made = self.answer(os.pread(given[0], 1 << 20, 0))
            os.close(given[0])
            channel.send(b"%d" % len(made))
            channel.send(made)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = make(tmp_path, monkeypatch)
    output = made.agent.output
    output.artifacts.store = ArtifactWriter(
        str(tmp_path / "artifacts"), run_artifacts.limits(made.node.config, str(tmp_path / "artifacts"))
    )
    output.events.ring = EventWriter(str(tmp_path / "events"), 0, os.getgid())
    sensor = MagicMock(spec=Recorder)
    sensor.recording.return_value = Recording(recorded(lib.RECORDED_EXIT, value=256), 3, 0, 0, OWNER, 1.0, 2.0, 3.0)
    made.node.tracer.sensors = {"recorder": MagicMock(sensor=sensor)}  # type: ignore[misc]
    return made


def recorded_run(made: Made) -> int:
    run = made.begin("12.0")
    made.node.runs.state["kernel_slot"][run] = 1
    made.node.runs.rows["death"][run] = b"exit code 1"
    return run


def contents(made: Made) -> list[tuple[Coverage, list[Event]]]:
    reader = ArtifactReader(made.agent.output.artifacts.store.folder)
    return [last_events.decode(reader.read(name)[1]) for name in reader.names()]


def served(recorder: FlightRecorder, readers: Readers, selector: MagicMock) -> None:
    """The reader answers, and joblensd hears it."""
    readers.serve()
    for _ in range(3):
        for call in selector.register.call_args_list[-1:]:
            call.args[2]()


def test_a_death_is_kept_as_an_artifact(made: Made) -> None:
    run, selector = recorded_run(made), MagicMock()
    readers, recorder = Readers(recorder_reader.made_of), made.agent.recorder
    recorder.open(readers, selector)  # type: ignore[arg-type]
    recorder.tag_if_recorded(run, "death")
    served(recorder, readers, selector)
    ((coverage, events),) = contents(made)
    assert (coverage.cause, coverage.death, coverage.overwritten) == ("death", "exit code 1", 3)
    assert [event.result for event in events] == ["status 1"]
    assert not (Path(made.node.config.run_dir) / flight_recorder.FOLDER).exists()
    (stored,) = made.agent.output.artifacts.store.stored()
    assert stored.uid == OWNER


def test_so_is_a_hang_and_the_death_that_may_follow(made: Made) -> None:
    run, selector = recorded_run(made), MagicMock()
    readers, recorder = Readers(recorder_reader.made_of), made.agent.recorder
    recorder.open(readers, selector)  # type: ignore[arg-type]
    for cause in ("hang", "death"):
        recorder.tag_if_recorded(run, cause)
        served(recorder, readers, selector)
    (first, events), (second, _) = contents(made)
    assert [(each.cause, each.death) for each in (first, second)] == [("hang", ""), ("death", "exit code 1")]
    assert "It seemed to hang at" in before_death.page(first, events, Style(110))[0]


def test_a_copy_outlives_joblensd(made: Made) -> None:
    run = recorded_run(made)
    made.agent.recorder.tag_if_recorded(run, "death")
    (copy,) = (Path(made.node.config.run_dir) / flight_recorder.FOLDER).iterdir()
    assert (copy.parent.stat().st_mode & 0o777, copy.stat().st_mode & 0o777) == (0o700, 0o600)
    readers, selector = Readers(recorder_reader.made_of), MagicMock()
    after = FlightRecorder(made.node, made.agent.output.artifacts)
    after.open(readers, selector)  # type: ignore[arg-type]
    served(after, readers, selector)
    assert len(contents(made)) == 1 and not copy.exists()


def test_the_owner_of_a_job_whose_folder_is_gone_is_known(made: Made) -> None:
    run, selector = recorded_run(made), MagicMock()
    made.node.handles[run].sandbox = None
    readers = Readers(recorder_reader.made_of)
    made.agent.recorder.open(readers, selector)  # type: ignore[arg-type]
    made.agent.recorder.tag_if_recorded(run, "death")
    served(made.agent.recorder, readers, selector)
    (stored,) = made.agent.output.artifacts.store.stored()
    assert stored.uid == OWNER


def test_a_copy_that_is_none_costs_itself_alone(made: Made) -> None:
    folder = Path(made.node.config.run_dir) / flight_recorder.FOLDER
    folder.mkdir()
    for name, content in (("1", b""), ("2", b"{}"), ("3", b"[" * 4096)):
        (folder / name).write_bytes(content)
    made.agent.recorder.open(Readers(recorder_reader.made_of), MagicMock())  # type: ignore[arg-type]
    assert list(folder.iterdir()) == [] and "not kept" in made.log[0]


def test_a_reader_that_fails_costs_the_copy_alone(made: Made) -> None:
    run, selector, readers = recorded_run(made), MagicMock(), Readers(lambda _: b"")
    made.agent.recorder.open(readers, selector)  # type: ignore[arg-type]
    made.agent.recorder.tag_if_recorded(run, "death")
    served(made.agent.recorder, readers, selector)
    assert contents(made) == [] and made.node.describe(run) in made.log[0]
    assert text(made.node.runs.rows["note"][run]) == "its last events are not kept: what reads it has failed"


def test_a_reader_that_hangs_is_ended(made: Made) -> None:
    run, selector, readers = recorded_run(made), MagicMock(), Readers(recorder_reader.made_of)
    recorder = made.agent.recorder
    recorder.open(readers, selector)  # type: ignore[arg-type]
    for _ in range(flight_recorder.MOST_READERS + 1):
        recorder.tag_if_recorded(run, "death")
    recorder.tick(time.monotonic() + flight_recorder.PATIENCE + 1)
    assert "too long" in made.log[0] and len(readers.channels) == flight_recorder.MOST_READERS + 1  # its turn
    readers.close()


def test_a_job_that_is_not_recorded_has_nothing(made: Made) -> None:
    run = made.begin("13.0")
    with pytest.raises(NotTagged, match="level trace"):
        made.agent.recorder.tag(run, "owner")
    made.agent.recorder.tag_if_recorded(run, "death")


def test_an_owner_asks_now_and_then(made: Made) -> None:
    run = recorded_run(made)
    assert made.agent.recorder.tag(run, "owner", not_so_often=True) <= time.time()
    with pytest.raises(NotTagged, match="a moment ago"):
        made.agent.recorder.tag(run, "owner", not_so_often=True)
    made.agent.recorder.tag_if_recorded(run, "death")


def test_all_jobs_of_a_node_can_die_at_once(made: Made) -> None:
    sensor: Any = made.node.tracer.sensors["recorder"]
    places = NODE_BYTES // 16 // map_layout.RECORDED.itemsize
    sensor.sensor.recording.return_value.records.resize(places)
    for _ in range(16):
        made.agent.recorder.tag_if_recorded(recorded_run(made), "death")
    folder = Path(made.node.config.run_dir) / flight_recorder.FOLDER
    assert len(list(folder.iterdir())) == 16 and made.log == []


def test_copies_that_wait_have_a_bound_and_who_goes_without_says_so(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight_recorder, "MOST_BYTES", 2 * recorder_reader.HEAD_BYTES + 256)
    runs = [recorded_run(made) for _ in range(3)]
    for run in runs:
        made.agent.recorder.tag_if_recorded(run, "death")
    notes = [text(made.node.runs.rows["note"][run]) for run in runs]
    assert notes[:2] == ["", ""]
    assert notes[2] == "its last events are not kept: 2 copies of jobs' last events wait to be read here"


def test_many_deaths_are_read_side_by_side_and_the_rest_in_their_turn(made: Made) -> None:
    run, selector, readers = recorded_run(made), MagicMock(), Readers(recorder_reader.made_of)
    recorder = made.agent.recorder
    recorder.open(readers, selector)  # type: ignore[arg-type]
    for _ in range(flight_recorder.MOST_READERS + 2):
        recorder.tag(run, "death")
    assert len(readers.channels) == flight_recorder.MOST_READERS
    for number in range(flight_recorder.MOST_READERS + 2):
        readers.serve()
        receive = selector.register.call_args_list[1 + number].args[2]
        for _ in range(3):
            receive()
    assert readers.channels == [] and len(contents(made)) == flight_recorder.MOST_OF_RUN
    assert not (Path(made.node.config.run_dir) / flight_recorder.FOLDER).exists()


def test_those_that_owners_ask_for_leave_room_for_deaths(made: Made) -> None:
    """A user of many jobs at level trace keeps no other user's last events from being kept."""
    mine = [recorded_run(made) for _ in range(flight_recorder.MOST_FOR_OWNERS + 1)]
    for run in mine[:-1]:
        made.agent.recorder.tag(run, "owner", not_so_often=True)
    with pytest.raises(NotTagged, match="8 copies of jobs' last events wait"):
        made.agent.recorder.tag(mine[-1], "owner", not_so_often=True)
    made.agent.recorder.tag(mine[-1], "death")


def test_what_a_user_has_kept_is_of_his_share_for_commands_and_deaths_are_of_nobodys(made: Made) -> None:
    nobody = selectors.DefaultSelector()
    commands = CommandNode(made.agent, Evidence(made.node, None, nobody), OwnerCommands(made.node, None, nobody))
    readers, run, other = Readers(recorder_reader.made_of), recorded_run(made), recorded_run(made)
    made.agent.recorder.open(readers, MagicMock())  # type: ignore[arg-type]
    made.agent.recorder.tag(run, "death")
    readers.charges[0](SAVED_OF_A_USER + 2)
    commands.keep_last_events(run, 1000)
    readers.charges[1](SAVED_OF_A_USER + 2)
    with pytest.raises(Refused, match="their share of CPU"):
        commands.keep_last_events(other, 1000)
    commands.keep_last_events(other, 1001)
    commands.keep_last_events(run, 0)
    readers.charges[3](100.0)
    commands.keep_last_events(run, 0)
    readers.close()


def test_an_exception_that_ended_a_python_is_among_the_events(made: Made) -> None:
    run, selector = recorded_run(made), MagicMock()
    number = int(made.node.runs.rows["run_number"][run])
    for when in range(5):
        made.agent.crashes.add_raised(number, Raised(12, 0.0, f"KeyError: {when} \u00e9", float(when)))
    readers = Readers(recorder_reader.made_of)
    made.agent.recorder.open(readers, selector)  # type: ignore[arg-type]
    made.agent.recorder.tag(run, "death")
    served(made.agent.recorder, readers, selector)
    ((_, events),) = contents(made)
    raised = [event for event in events if event.what == "raised"]
    assert [event.about for event in raised] == [f"KeyError: {when} \u00e9" for when in (2, 3, 4)]
    assert before_death.line(raised[0], 3.0).split() == ["-1.000", "s", "12", "reco", "raised:", "KeyError:", "2", "é"]
    assert events == sorted(events, key=lambda event: event.time)


def test_texts_of_exceptions_that_are_too_long_cost_themselves_alone() -> None:
    told = {"coverage": dataclasses.asdict(COVERAGE), "epoch": 0.0, "raised": [[1.0, 2, "\u00e9" * 9999]]}
    copy = recorder_reader.head_of(told)
    assert last_events.decode(recorder_reader.made_of(copy)) == (COVERAGE, [])


def test_a_job_that_htcondor_has_ended_is_kept_too(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    run, tagged = recorded_run(made), []
    monkeypatch.setattr(made.agent.recorder, "tag_if_recorded", lambda run, cause: tagged.append(cause))
    monkeypatch.setattr(process_events, "drain", lambda agent: None)
    for words, has_died in (("removed, held or evicted", False), ("exit code 3", True), ("", False)):
        made.node.runs.rows["death"][run] = words.encode()
        run_end.tell(made.agent, run, has_died)
    assert tagged == ["ended", "death"]


def test_the_page_says_that_htcondor_has_ended_it() -> None:
    ended = dataclasses.replace(COVERAGE, cause="ended", death="ended by HTCondor (SIGTERM)")
    assert re.match("It ended at [-0-9: ]+: ended by HTCondor", before_death.page(ended, [], Style(110))[0])


# -- the process --------------------------------------------------------------------------------------------------


def test_the_reader_makes_an_artifact_of_what_it_is_handed(tmp_path: Path) -> None:
    told = {"coverage": dataclasses.asdict(COVERAGE), "epoch": 990.0}
    records = [recorded(lib.RECORDED_EXIT, value=256, pid=pid) for pid in range(1, 4000)]
    path = tmp_path / "copy"
    path.write_bytes(recorder_reader.head_of(told) + np.concatenate(records).tobytes())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, path.open("rb") as copy:
        process = own_process.start(own_process.command(recorder_reader.MODULE), theirs)
        theirs.close()
        socket.send_fds(ours, [b"copy"], [copy.fileno()])
        length = int(ours.recv(64))
        made = b""
        while packet := ours.recv(1 << 16):
            made += packet
        assert (process.wait(), len(made)) == (0, length)
    coverage, events = last_events.decode(made)
    assert coverage == COVERAGE and [event.pid for event in events] == list(range(1, 4000))


@pytest.mark.parametrize(
    "act",
    [
        lambda: os.open("/etc/passwd", os.O_RDONLY),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        lambda: os.fork(),
        lambda: os.kill(os.getppid(), signal.SIGCONT),
        lambda: os.execv("/bin/true", ["true"]),
        lambda: os.unlink("/tmp/there-is-no-such-file"),
    ],
    ids=["open", "socket", "fork", "kill", "exec", "unlink"],
)
def test_the_reader_can_do_nothing_else(act: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            recorder_reader.confine()
            act()
        except OSError as error:
            code = 0 if error.errno in (1, 38) else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
