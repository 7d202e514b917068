"""What reads HTCondor's configuration for joblensd: as often as it is asked, and it says why it can't."""

from __future__ import annotations

import os
import pwd
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from condor_joblens.agent import config_reader
from condor_joblens.agent.config_reader import ConfigReader
from condor_joblens.common import readiness, user_names
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "condor_config_val"
    path.touch(0o755)
    return path


@pytest.fixture
def reader(program: Path) -> Iterator[ConfigReader]:
    reader = ConfigReader([str(program), "-dump", "^(A b|C)$"])
    yield reader
    reader.stop()


def test_each_time_it_says_what_is_there_now(reader: ConfigReader, program: Path) -> None:
    program.write_text('#!/bin/sh\necho "$@"\necho "A = $NAME"\necho warning >&2\n')
    assert reader.read().strip() == "-dump ^(A b|C)$\nA ="
    program.write_text("#!/bin/sh\nseq 200000\n")
    assert len(reader.read().split()) == 200000
    program.write_text("#!/bin/sh\n")
    assert reader.read() == ""


def test_it_says_why_it_fails_and_goes_on(reader: ConfigReader, program: Path) -> None:
    program.write_text("#!/bin/sh\necho half\necho 'ERROR: no file' >&2\nexit 3\n")
    with pytest.raises(JobLensError, match=r"^condor_config_val fails: ERROR: no file$"):
        reader.read()
    program.unlink()
    with pytest.raises(JobLensError, match="condor_config_val fails"):
        reader.read()
    program.write_text("#!/bin/sh\necho A = 1\n")
    program.chmod(0o755)
    assert reader.read() == "A = 1\n"


def test_it_looks_users_up(reader: ConfigReader, program: Path) -> None:
    program.write_text("#!/bin/sh\necho A = 1\n")
    wanted: dict[int, str | None] = {0: "root", os.getuid(): pwd.getpwuid(os.getuid()).pw_name, 3999999999: None}
    assert looked_up(reader, *wanted) == wanted
    assert reader.read() == "A = 1\n"


def looked_up(reader: ConfigReader, *uids: int) -> dict[int, str | None]:
    """Their names, asked for at once."""
    found: dict[int, str | None] = {}
    for uid in uids:
        reader.ask_name(uid)
    while len(found) < len(set(uids)):
        readiness.readable([reader], 60)
        reader.receive_names(found.__setitem__)
    return found


def test_a_slow_directory_keeps_neither_joblensd_nor_the_configuration_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks joblensd for something has his user id looked up: he must not be able to stop it for that time."""
    (tmp_path / "getent").write_text('#!/bin/sh\nwhile [ ! -e "$0.answers" ]; do sleep 0.05; done\necho "a:x:$2:::"\n')
    (tmp_path / "getent").chmod(0o755)
    monkeypatch.setattr(config_reader, "search_path", lambda: f"{tmp_path}:{os.environ['PATH']}")
    reader = ConfigReader(["/bin/echo", "A = 1"])
    names = user_names.UserNames()
    names.ask = reader.ask_name
    told: list[int] = []
    assert names.name_of(1000) is None
    assert names.is_awaited(1000, lambda: told.append(1000))
    assert reader.read() == "A = 1\n"
    reader.receive_names(names.learn)
    assert told == []
    (tmp_path / "getent.answers").touch()
    while not told:
        readiness.readable([reader], 60)
        reader.receive_names(names.learn)
    assert names.name_of(1000) == "a" and not names.is_awaited(1000, lambda: told.append(2))
    reader.stop()


def test_few_names_are_asked_for_at_a_time_and_who_waits_is_told_in_the_end() -> None:
    asked: list[int] = []
    told: list[int] = []
    names = user_names.UserNames()
    names.ask = asked.append
    for uid in range(1, 200):
        if not names.is_awaited(uid, lambda uid=uid: told.append(uid)):
            assert uid > user_names.MOST_WANTED
    assert asked == [1, 2, 3, 4], "of 200 users"
    for uid in range(1, 1 + user_names.MOST_WANTED):
        assert uid in asked and told == [*range(1, uid)]
        names.learn(uid, f"u{uid}")
    assert names.name_of(7) == "u7" and names.name_of(0) == "root" and names.name_of(100) is None
    assert asked == [*range(1, 1 + user_names.MOST_WANTED), 100]


def test_an_old_name_is_shown_until_the_new_one_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    names = user_names.UserNames()
    names.ask = asked.append
    names.learn(1000, "alice")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * user_names.KEPT_SECONDS)
    assert names.name_of(1000) == "alice" and asked == [1000]
    assert names.is_awaited(1000, lambda: None), "what hangs on it waits"
    names.learn(1000, "bob")
    assert names.name_of(1000) == "bob"


def test_a_name_is_asked_for_once_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    names = user_names.UserNames(lambda uid: asked.append(uid) or ("alice" if uid == 1000 else None))
    assert [names.name_of(uid) for uid in (1000, 1001, 1000, 1001)] == ["alice", None, "alice", None]
    assert asked == [1000, 1001]
    monkeypatch.setattr(user_names, "KEPT", 2)
    assert names.name_of(1002) is None and names.name_of(1000) == "alice"
    assert asked == [1000, 1001, 1002, 1000]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * user_names.KEPT_SECONDS)
    assert names.name_of(1000) == "alice" and asked[-2:] == [1000, 1000]
    assert user_names.of_this_process(0) == "root" and user_names.of_this_process(3999999999) is None


def test_one_that_hangs_is_ended(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_reader, "SECONDS", 1)
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    reader = ConfigReader([str(program)])
    with pytest.raises(JobLensError, match="does not answer within 1 s"):
        reader.read()
    reader.stop()


def test_a_signal_to_all_of_joblensds_processes_is_joblensds_to_obey(reader: ConfigReader, program: Path) -> None:
    program.write_text("#!/bin/sh\necho A = 1\n")
    reader.read()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        os.kill(reader.pid, number)
    assert reader.read() == "A = 1\n"


def test_its_end_is_noticed(reader: ConfigReader) -> None:
    os.kill(reader.pid, signal.SIGKILL)
    with pytest.raises(HelperLost, match="the process that reads HTCondor's configuration was ended by signal 9"):
        reader.read()
