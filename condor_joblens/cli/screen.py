"""The terminal's other screen, keys as they are pressed, and at the end the terminal as it was before."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import NoReturn

from condor_joblens.common import readiness

_OPEN = "\033[?1049h\033[?25l"  # the alternate screen, no cursor
_CLOSE = "\033[?25h\033[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\033[H", "\033[K", "\033[J"

_FUNCTION_KEY = re.compile(r"\033[\[O]?[0-9;]*.?")
"""What arrows, F1 and their kin send: letters among others."""


class Screen:
    """A context in which `show` draws whole screens and `keys` waits for keys.

    It uses plain control sequences instead of curses, because every terminal of today knows these six. A TERM without a
    terminfo entry, common after a login from a newer system, changes nothing.
    """

    def __enter__(self) -> Screen:
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._before = termios.tcgetattr(self._input)
        # a signal that comes just before select() would otherwise be seen only after it
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(self._wake)
        handlers = {
            signal.SIGTERM: _leave,
            signal.SIGHUP: _leave,
            signal.SIGTSTP: self._suspend,  # ^Z: the shell gets its terminal back, and we ours when we go on
            signal.SIGWINCH: _redraw,
        }
        self._handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        os.close(self._wake)
        os.close(self._woken)

    def _open(self) -> None:
        tty.setcbreak(self._input)
        self._write(_OPEN)

    def _close(self) -> None:
        with contextlib.suppress(OSError, termios.error):  # a terminal that is gone needs nothing restored
            self._write(_CLOSE)
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._close()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._open()

    def _write(self, text: str) -> None:
        """Past sys.stdout, which refuses a signal's handler while the screen is being drawn."""
        rest = text.encode("utf-8", "replace")
        while rest:
            rest = rest[os.write(self._output, rest) :]

    def show(self, lines: Sequence[str], foot: str) -> None:
        """Draws `lines`, as many as there is room for above the line `foot`, over what was there: no flicker."""
        room = max(os.get_terminal_size(self._output).lines - 2, 2)
        shown = list(lines)
        if len(lines) > room:
            shown[room - 1 :] = [f"... {len(lines) - room + 1} more"]
        drawn = "\n".join(line + _REST_OF_LINE for line in [*shown, "", foot])
        self._write(_HOME + drawn + _REST_OF_SCREEN)

    def keys(self, seconds: float) -> str:
        """The letters that are pressed within `seconds`, fewer where a signal comes; `q` without a keyboard."""
        ready = readiness.readable([self._input, self._woken], seconds)
        if self._woken in ready:
            os.read(self._woken, 64)
        if self._input not in ready:
            return ""
        pressed = os.read(self._input, 64).decode("ascii", "replace")
        return _FUNCTION_KEY.sub("", pressed).lower() if pressed else "q"


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _redraw(number: int, frame: FrameType | None) -> None:
    """The terminal has another size: having been woken up is enough."""
