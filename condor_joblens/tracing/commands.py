"""Commands of shells, put together from what their probes tell: when each began, how it ended, and what it was in.

bash says how a command ended in a variable, and what it says there is read when the shell begins its next command. At
that hit the stack says what has ended: a function, `eval` or a sourced file goes on while commands are begun deeper.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from condor_joblens.tracing.shell_file import COMMAND, SHELL_END

SIMPLE = 4  # cm_simple of bash's command.h
_AGAIN = 0x1 | 0x2 | 0x80  # CMD_WANT_SUBSHELL, CMD_FORCE_SUBSHELL, CMD_TIME_PIPELINE: it is begun once more, within
_BACKGROUND, _INTO_PIPE, _SKIPPED, _CUT, _UNREADABLE = 1, 4, 8, 16, 32  # enum traced_command_how
_EXIT_TRAP = 1

MOST_SHELLS = 4_000
"""Whose commands are known; those of the one that was seen first are forgotten for another one's."""

MOST_DEEP = 1_000
"""Commands of a shell that are known at a time, the innermost."""

__all__ = ["COMMAND", "SHELL_END", "SIMPLE", "Command", "CommandHit", "Commands", "End"]


class End(enum.Enum):
    """How a command ended, as far as its shell knows it."""

    ENDED = "ended"
    """With a status."""
    IN_BACKGROUND = "background"
    """Its shell went on at once."""
    IN_PIPE = "pipe"
    """It writes to the next command, which its shell began at once: the status is the last one's."""
    IN_TRAP = "trap"
    """The last command of a trap: after it the shell has the status that it had before."""
    NOT_SEEN = "not seen"
    """The shell went on as another program, or was killed; or it goes on, also while commands were counted alone."""


class CommandHit(NamedTuple):
    """One hit of a probe in a bash (struct traced_command). There are thousands a second: a tuple is made fastest."""

    kind: int
    function: int
    time_ns: int
    stack: int
    pid: int
    image: int  # where its program is in memory: another one after an exec
    status: int
    line: int
    type: int
    flags: int
    trap: int
    how: int
    text: bytes = b""  # its words, each with a NUL behind it
    script: bytes = b""
    top: int = 0  # the highest stack pointer of its shell's hits since the last one that was told; below `stack`: none
    untold: int = 0  # so many hits of its shell were counted alone until then


@dataclass
class Command:
    """One simple command."""

    hit: CommandHit
    depth: int
    end: End = End.NOT_SEEN
    status: int | None = None
    took_ns: int | None = None

    @property
    def is_cut(self) -> bool:
        """Whether it had more words than are told."""
        return bool(self.hit.how & (_CUT | _UNREADABLE))


@dataclass
class _Shell:
    image: int
    function: int  # the number of its bash
    untold: int  # hits that were counted alone, until its last one that was told
    open: list[Command] = field(default_factory=list)


class Commands:
    """Those of all shells of a job."""

    def __init__(self) -> None:
        self.is_incomplete = False
        """Shells were forgotten, because there are too many."""
        self.shells = 0
        """So many have begun a command."""
        self._shells: dict[int, _Shell] = {}  # by pid

    def take(self, hit: CommandHit) -> list[Command]:
        """The commands that have ended by what a probe tells, the innermost first."""
        shell = self._shells.get(hit.pid)
        ended: list[Command] = []
        if shell is None or (hit.kind == COMMAND and shell.image != hit.image):
            ended += self.forget([hit.pid])  # what goes on is another program
            if hit.kind == SHELL_END:
                return ended
            self.shells += shell is None
            ended += self._make_room()
            shell = self._shells[hit.pid] = _Shell(hit.image, hit.function, hit.untold)
        if hit.kind == SHELL_END:
            ended += _close(shell, hit, len(shell.open))
            del self._shells[hit.pid]
            return ended
        ended += _close(shell, hit, _ended_by(shell, hit))
        shell.untold = hit.untold
        if hit.type == SIMPLE and not hit.flags & _AGAIN and not hit.how & _SKIPPED:
            ended += self._begin(shell, hit)
        return ended

    def _begin(self, shell: _Shell, hit: CommandHit) -> list[Command]:
        command = Command(hit, len(shell.open))
        if hit.how & (_BACKGROUND | _INTO_PIPE):
            command.end = End.IN_BACKGROUND if hit.how & _BACKGROUND else End.IN_PIPE
            return [command]
        gone = [shell.open.pop(0)] if len(shell.open) >= MOST_DEEP else []
        shell.open.append(command)
        return gone

    def _make_room(self) -> list[Command]:
        if len(self._shells) < MOST_SHELLS:
            return []
        self.is_incomplete = True
        return self.forget([next(iter(self._shells))])

    def forget(self, pids: Iterable[int]) -> list[Command]:
        """These shells are gone, and did not say how; their commands that had not ended."""
        gone: list[Command] = []
        for pid in list(pids):
            shell = self._shells.pop(pid, None)
            for command in reversed(shell.open if shell is not None else []):
                command.end = End.IN_TRAP if command.hit.trap else End.NOT_SEEN
                gone.append(command)
        return gone

    def all_pids(self) -> list[int]:
        """Of the shells that are known."""
        return list(self._shells)

    def pids_of(self, function: int) -> list[int]:
        """Of those that run the bash with this number."""
        return [pid for pid, shell in self._shells.items() if shell.function == function]


def _ended_by(shell: _Shell, hit: CommandHit) -> int:
    """How many of its open commands are over when another one begins here."""
    if hit.trap == _EXIT_TRAP:
        # the shell is about to end: what it does now is in nothing that it did before
        before = [command for command in shell.open if command.hit.trap != _EXIT_TRAP]
        if before:
            return len(shell.open)
    count, top = 0, max(hit.stack, hit.top)
    for command in reversed(shell.open):
        is_after_trap = command.hit.trap and not hit.trap
        if command.hit.stack > top and not is_after_trap:
            break
        count += 1
    return count


def _close(shell: _Shell, hit: CommandHit, count: int) -> list[Command]:
    ended, is_known = [], hit.untold == shell.untold
    for _ in range(count):
        command = shell.open.pop()
        ended.append(command)
        if not is_known:
            continue  # it may have been over long before, and the status be that of another one
        command.took_ns = max(0, hit.time_ns - command.hit.time_ns)
        if command.hit.trap and (hit.kind == SHELL_END or hit.trap != command.hit.trap):
            command.end = End.IN_TRAP
        else:
            command.end, command.status = End.ENDED, hit.status
    return ended
