"""What every daemon shares: what nothing catches is in its log, signals, the log's reopening, forgotten keys."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
STAMPED = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<message>[ -~]*)")

START = """
import gc, sys, threading
from condor_joblens.common.daemon import Daemon, run
from condor_joblens.common.signals import Stop
daemon = Daemon("itd", "IT", "ItLog", "NOTHING")
daemon.read_macros()
daemon.open_log()
"""

LOOP = """
try:
    while True:
        if daemon.signals.wait():
            daemon.read_macros()
            daemon.open_log()
            daemon.log("again")
            daemon.log.full_debug("and in full")
except Stop:
    daemon.log("stopped")
"""


class Process:
    """A program that is started as condor_master does it, with a condor_config_val of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "ItLog"
        program = folder / "bin" / "condor_config_val"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\nexec cat {folder}/macros\n")
        program.chmod(0o755)
        self.process: subprocess.Popen[bytes] | None = None
        self.configure()

    def configure(self, **macros: str) -> None:
        given = {"LOG": str(self.folder), "JOBLENS_RUN_DIR": str(self.folder / "run"), **macros}
        (self.folder / "macros").write_text("".join(f"{name} = {value}\n" for name, value in given.items()))

    def start(self, script: str) -> None:
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "CONDOR_INHERIT": "secret",
            "CONDOR_PRIVATE_INHERIT": "secret",
        }
        command = [sys.executable, "-c", script]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    def end(self, number: int = 0) -> int:
        assert self.process
        if number:
            self.process.send_signal(number)
        return self.process.wait(60)

    def messages(self, log: Path | None = None) -> list[str]:
        """The log's lines, each of which must be in HTCondor's form."""
        found = [STAMPED.fullmatch(line) for line in (log or self.log).read_text().splitlines()]
        assert all(found)
        return [line["message"] for line in found if line]

    def until(self, message: str, log: Path | None = None) -> None:
        deadline = time.monotonic() + 60
        while not ((log or self.log).exists() and message in self.messages(log)):
            assert time.monotonic() < deadline and self.process and self.process.poll() is None
            time.sleep(0.02)


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    if process.process and process.process.poll() is None:
        process.process.kill()
        process.process.wait()


def test_what_nothing_catches_in_the_main_thread_is_logged_and_ends_it(it: Process) -> None:
    it.start(START + "def inner():\n    return {}['where is it']\ninner()\n")
    assert it.end() == 1
    messages = it.messages()
    assert messages[1] == "itd ends: nothing caught this exception:"
    assert messages[2] == "  Traceback (most recent call last):"
    assert any("in inner" in message for message in messages)
    assert messages[-1] == "  KeyError: 'where is it'"


def test_so_it_is_where_no_thread_is_waited_for(it: Process) -> None:
    forever = "threading.Thread(target=threading.Event().wait).start()\n"
    it.start(START + forever + "def main():\n    raise OSError(28, 'No space left on device')\nrun(main)\n")
    assert it.end() == 1
    assert it.messages()[-1] == "  OSError: [Errno 28] No space left on device"


def test_what_nothing_catches_in_a_thread_is_logged_and_the_others_go_on(it: Process) -> None:
    it.start(START + "threading.Thread(target=lambda: 1 / 0, name='source').start()\n" + LOOP)
    it.until("  ZeroDivisionError: division by zero")
    assert "itd: the thread source ends: nothing caught this exception:" in it.messages()
    assert it.end(signal.SIGTERM) == 0


def test_a_thread_that_ends_itself_is_no_fault(it: Process) -> None:
    it.start(START + "thread = threading.Thread(target=sys.exit)\nthread.start()\nthread.join()\n" + LOOP)
    it.until("itd 0.1.0 starts, process " + str(it.process.pid if it.process else 0))
    assert it.end(signal.SIGTERM) == 0
    assert len(it.messages()) == 2


def test_what_a_destructor_raises_is_logged(it: Process) -> None:
    broken = "class Broken:\n    def __del__(self):\n        raise RuntimeError('too late')\n"
    it.start(START + broken + "broken = Broken()\ndel broken\ngc.collect()\n" + LOOP)
    it.until("  RuntimeError: too late")
    assert any(re.fullmatch("itd: Exception ignored .* Broken.__del__:", m) for m in it.messages())
    assert it.end(signal.SIGTERM) == 0


def test_text_from_strangers_forges_no_line_and_no_traceback_fills_the_log(it: Process) -> None:
    strange = "'\\x1b[2J\\n01/01/26 00:00:00 itd stops\\u202e\\n' + 1000 * 'line\\n' + 5_000_000 * 'x'"
    it.start(START + f"def main():\n    raise ValueError({strange})\nrun(main)\n")
    assert it.end() == 1
    assert it.log.stat().st_size < 50_000
    messages = it.messages()
    assert all(message.startswith("  ") for message in messages[2:])
    assert "itd stops" not in messages
    assert any(re.fullmatch(r"  \.\.\. \d+ lines left out \.\.\.", message) for message in messages)


def test_an_endless_recursion_and_an_exception_that_cannot_be_printed(it: Process) -> None:
    bad = "class Bad(Exception):\n    def __str__(self):\n        return recurse()\n"
    it.start(START + "def recurse():\n    return recurse()\n" + bad + "raise Bad\n")
    assert it.end() == 1
    assert it.messages()[-1] == "  Bad: <exception str() failed>"


def test_the_keys_of_the_pool_are_forgotten(it: Process) -> None:
    it.start(START + "import os\ndaemon.log(repr(sorted(n for n in os.environ if 'INHERIT' in n)))\n")
    assert it.end() == 0
    assert it.messages()[-1] == "[]"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT])
def test_each_signal_that_condor_master_stops_by(it: Process, number: int) -> None:
    it.start(START + "daemon.log('ready')\n" + LOOP)
    it.until("ready")
    assert it.end(number) == 0 and it.messages()[-1] == "stopped"


def test_sighup_opens_the_log_again_after_a_rotation(it: Process) -> None:
    it.start(START + "daemon.log('ready')\n" + LOOP)
    it.until("ready")
    os.rename(it.log, it.folder / "ItLog.1")
    assert it.process
    it.process.send_signal(signal.SIGHUP)
    it.until("again")
    assert it.messages(it.folder / "ItLog.1")[-1] == "ready"


def test_sighup_takes_another_path_and_another_severity(it: Process) -> None:
    it.start(START + "daemon.log('ready')\n" + LOOP)
    it.until("ready")
    it.configure(IT_LOG=f"{it.folder}/Other", IT_DEBUG="D_FULLDEBUG D_PID D_FULDEBUG D_SECURITY")
    assert it.process
    it.process.send_signal(signal.SIGHUP)
    pid = f"(pid:{it.process.pid})"
    it.until(f"{pid} and in full", it.folder / "Other")
    assert it.messages()[-1] == "ready"
    unknown = "IT_DEBUG: HTCondor has no debug level D_FULDEBUG: did you mean D_FULLDEBUG?"
    assert f"{pid} {unknown}; correct it and run condor_reconfig" in it.messages(it.folder / "Other")


AGENT = """
from condor_joblens.agent import __main__ as agent, machine, startup
machine.prepare = lambda log: None
def wait_for_kernel(*_):
    raise KeyError("cpu_seconds")
startup.wait_for_kernel = wait_for_kernel
agent.sys.exit(agent.main())
"""

EXPORT = """
from condor_joblens.export import __main__ as export
export.service_ids = lambda: None
def exporter(*_):
    raise KeyError("cpu_seconds")
export.Exporter = exporter
export.run(export.main)
"""


@pytest.mark.parametrize("script, log, name", [(AGENT, "JobLensdLog", "joblensd"), (EXPORT, "JobLensExportLog", "")])
def test_a_fault_of_our_own_daemons_is_in_their_logs(it: Process, script: str, log: str, name: str) -> None:
    it.start(script)
    assert it.end() == 1
    messages = it.messages(it.folder / log)
    assert f"{name or 'joblens-export'} ends: nothing caught this exception:" in messages
    assert messages[-1] == "  KeyError: 'cpu_seconds'"


REOPENS = """
import os, sys
from condor_joblens.common import privilege
from condor_joblens.common.log import open_log
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.owner_files.client import Helper
path = sys.argv[1]
log = open_log(path, (65534, 65534))
log.open_as_owner = Helper(AllowedIds(1000, (65534,), 1000, (65534,)), 64001, 64001).open_log
log("before")
with privilege.as_owner(65534, 65534):
    os.rename(path, path + ".1")
privilege.keep_only(tuple(privilege.NEEDED))
log.reopen(path, (65534, 65534))
log("after")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root has capabilities to give up")
def test_root_without_capabilities_opens_its_log_again_in_another_user_s_folder(tmp_path: Path) -> None:
    """As joblensd does in HTCondor's folder."""
    folder = Path(tempfile.mkdtemp(prefix="joblens-log", dir="/tmp"))  # pytest's own only root may enter
    try:
        os.chown(folder, 65534, 65534)
        path = folder / "Log"
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        subprocess.run([sys.executable, "-c", REOPENS, str(path)], check=True, env=environment, timeout=60)
        assert "before" in (folder / "Log.1").read_text() and "after" in path.read_text()
        assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)
    finally:
        shutil.rmtree(folder)
