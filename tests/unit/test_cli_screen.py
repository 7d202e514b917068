"""`joblens top` on a terminal: it reacts to keys, and leaves the terminal as it was however it ends."""

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from cli_samples import NOW, bob, publish, row

from condor_joblens.common import readiness

PATIENCE = 30  # seconds for a loaded machine; nothing here waits that long otherwise


class Terminal:
    """`joblens top` in a terminal of 100 x 24."""

    def __init__(self, folder, *arguments):
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "condor_joblens.cli.main", "top", "--run-dir", str(folder), *arguments],
            stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}, start_new_session=True,
        )  # fmt: skip

    def until(self, words):
        """Reads until `words` have been shown."""
        end = time.monotonic() + PATIENCE
        while words not in self.shown:
            ready = readiness.readable([self.master], PATIENCE)
            assert ready and time.monotonic() < end, f"{words!r} never came: {self.shown[-4000:]!r}"
            self.shown += os.read(self.master, 65536).decode()

    def ends(self):
        """The exit code, once what is left has been read."""
        self.until("\033[?1049l")
        code = self.process.wait(PATIENCE)
        assert termios.tcgetattr(self.slave) == self.before, "line editing and echo are back"
        assert self.shown.endswith("\033[?25h\033[?1049l"), "cursor and first screen are back"
        return code

    def press(self, keys):
        os.write(self.master, keys.encode())


@pytest.fixture
def top(tmp_path):
    publish(tmp_path, "rows", row(), bob())
    terminals = []

    def start(*arguments):
        terminals.append(Terminal(tmp_path, *arguments))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
        os.close(terminal.slave)


def test_keys_sort_and_q_quits(top):
    terminal = top("-d", "60")
    terminal.until("[cores]")
    assert terminal.shown.startswith("\033[?1049h")
    terminal.press("m")
    terminal.until("[memory]")
    terminal.press("x\033[A")
    terminal.press("q")
    assert terminal.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_leave_the_terminal_as_it_was(top, number):
    terminal = top("-d", "60")
    terminal.until("[cores]")
    terminal.process.send_signal(number)
    assert terminal.ends() == 128 + number


def test_another_size_is_drawn_at_once(top):
    terminal = top("-d", "60")
    terminal.until("[cores]")
    assert "WRITE/s" in terminal.shown
    terminal.shown = ""
    fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    terminal.process.send_signal(signal.SIGWINCH)
    terminal.until("memory rea..")
    assert "WRITE/s" not in terminal.shown


def test_suspended_the_shell_has_its_terminal_and_then_the_screen_comes_back(top):
    terminal = top("-d", "60")
    terminal.until("[cores]")
    terminal.process.send_signal(signal.SIGTSTP)
    terminal.until("\033[?1049l")
    os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
    assert termios.tcgetattr(terminal.slave) == terminal.before
    terminal.shown = ""
    terminal.process.send_signal(signal.SIGCONT)
    terminal.until("\033[?1049h")
    terminal.until("[cores]")
    terminal.press("q")
    assert terminal.ends() == 0


def test_suspended_in_the_midst_of_drawing(top):
    """A signal's handler runs between any two instructions: it once met sys.stdout in use, and the screen ended."""
    terminal = top("-d", "0.1")
    terminal.until("[cores]")
    for _ in range(60):
        for letter in "mcmcmcmc":  # each is drawn at once
            terminal.press(letter)
        terminal.process.send_signal(signal.SIGTSTP)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.shown = ""
        terminal.until("\033[?1049h")
    terminal.press("q")
    terminal.shown = ""
    assert terminal.ends() == 0


def test_more_jobs_than_lines_are_counted_and_the_keys_stay_in_sight(tmp_path, top):
    publish(tmp_path, "rows", *(row(slot=f"slot1_{i}", run=str(i)) for i in range(60)))
    terminal = top("-d", "60")
    terminal.until("[cores]")
    assert "... 41 more" in terminal.shown
    assert terminal.shown.count("slot1_") == 19


def test_it_stops_after_its_refreshes_and_the_screen_without_rates_is_none(top):
    terminal = top("-n", "1", "-d", "0.1")
    assert terminal.ends() == 0
    assert terminal.shown.count("\033[H") >= 2


def test_rates_that_nobody_knows_yet_are_told_as_such(tmp_path, top):
    first, then = row(), row()
    for rows, requests in ((first, 10), (then, 4000)):
        its = rows["servers"][0, 0]
        its["name"], its["scope"], its["requests"] = b"/cvmfs/x", 1, requests
    writer = publish(tmp_path, "rows", first)
    terminal = top("-d", "0.1", "--by", "server")
    terminal.until("counting has begun")
    writer.publish(then, NOW + 10)
    terminal.until(" 399 ")
    terminal.press("q")
    assert terminal.ends() == 0


def test_joblensd_that_goes_away_is_one_line_on_a_restored_terminal(top, tmp_path):
    terminal = top("-d", "0.1")
    terminal.until("[cores]")
    (tmp_path / "rows").unlink()
    assert terminal.process.wait(PATIENCE) == 1
    terminal.until("rows is not there")
    assert terminal.shown.index("\033[?1049l") < terminal.shown.index("joblens: ")
    assert termios.tcgetattr(terminal.slave) == terminal.before
