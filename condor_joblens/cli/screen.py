"""The terminal's other screen, keys as they are pressed, and at the end the terminal as it was before."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import NoReturn

from condor_joblens.cli.terminal import style

_OPEN = "\033[?1049h\033[?25l"  # the alternate screen, no cursor
_CLOSE = "\033[?25h\033[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\033[H", "\033[K", "\033[J"


class Screen:
    """A context in which `show` draws whole screens and `key` waits for a key.

    Plain control sequences instead of curses: every terminal of today knows these six, and a TERM without a
    terminfo entry, common when one logs in from a newer system, changes nothing.
    """

    def __enter__(self) -> Screen:
        self._input = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._input)
        self._handlers = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
        # suspended with ^Z: the shell gets its terminal back, and we ours when we go on
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspend)
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _open(self) -> None:
        tty.setcbreak(self._input)
        self._write(_OPEN)

    def _close(self) -> None:
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
        with contextlib.suppress(OSError):  # the terminal may be gone: then nothing is left to restore
            self._write(_CLOSE)

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._close()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._open()

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def show(self, lines: Sequence[str]) -> None:
        """Draws `lines`, as many as there is room for, over what was there: nothing flickers."""
        height = os.get_terminal_size(sys.stdout.fileno()).lines
        shown = list(lines) if len(lines) <= height else [*lines[: height - 1], style().paint("...", "dim")]
        self._write(_HOME + "\n".join(line + _REST_OF_LINE for line in shown) + _REST_OF_SCREEN)

    def key(self, seconds: float) -> str:
        """The key that is pressed within `seconds`, or nothing; `q` when there is no keyboard any more."""
        ready, _, _ = select.select([self._input], [], [], max(seconds, 0.0))
        if not ready:
            return ""
        pressed = os.read(self._input, 32)
        return pressed.decode("ascii", "replace")[0].lower() if pressed else "q"


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
