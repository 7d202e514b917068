"""From a blocked thread's registers to the addresses of its stack: by unwind tables, else by frame pointers."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

from condor_joblens.profiling._eh_frame import lib
from condor_joblens.profiling.elf import NO_RULE, Rule

MOST_FRAMES = 255
_WINDOW = 16 << 10  # of the stack, read at a time
# where the kernel has saved registers of whom a signal interrupted, above the stack pointer of its handler's caller
_SAVED_FRAME, _SAVED_STACK, _SAVED_INSTRUCTION = 120, 160, 168


class Program(Protocol):
    """The process that is looked at."""

    def rule(self, address: int) -> Rule:
        """How to unwind at an address; NO_RULE if nobody says."""

    def read(self, address: int, size: int) -> bytes:
        """Its memory; less than `size` where it ends."""


@dataclass(frozen=True)
class Step:
    """A frame: `address` is in its code, of a caller just before the call returns. `is_guessed`: by a frame pointer."""

    address: int
    is_guessed: bool


@dataclass(frozen=True)
class Stack:
    """Frames, the innermost first; `is_whole` if the last one is known to have no caller."""

    steps: tuple[Step, ...]
    is_whole: bool


def unwind(program: Program, instruction: int, stack: int, frame: int) -> Stack:
    """The stack of a thread with these registers."""
    return _Walk(program, instruction, stack, frame).run()


class _Walk:
    def __init__(self, program: Program, instruction: int, stack: int, frame: int) -> None:
        self._program = program
        self._instruction, self._stack, self._frame = instruction, stack, frame
        self._is_interrupted = True  # the innermost frame has not called: its own instruction counts
        self._at, self._memory = 0, b""

    def run(self) -> Stack:
        steps: list[Step] = []
        is_guessed = False
        while len(steps) < MOST_FRAMES:
            address = self._instruction - (0 if self._is_interrupted else 1)
            steps.append(Step(address, is_guessed))
            rule = self._program.rule(address)
            if rule.kind == lib.RULE_END:
                return Stack(tuple(steps), True)
            is_guessed = rule.kind == lib.RULE_NONE
            below = self._stack
            if not self._step(rule) or self._instruction == 0:
                # where the innermost thing on the stack is 0, the kernel or the C library has begun it
                return Stack(tuple(steps), rule.kind != lib.RULE_NONE and self._instruction == 0)
            if self._stack <= below and rule.kind != lib.RULE_SIGNAL:
                break
        return Stack(tuple(steps), False)

    def _step(self, rule: Rule) -> bool:
        """Goes to the caller; False if memory or tables do not say where it is."""
        if rule.kind == lib.RULE_SIGNAL:
            return self._leave_handler()
        if rule.kind == lib.RULE_NONE:
            return self._by_frame_pointer()
        end = self._end_of_frame(rule)
        if end is None:
            return False
        back = self._word(end - 8)
        if rule.kind == lib.RULE_REALIGNED:
            frame = self._word(self._frame) if rule.frame else self._frame
        else:
            frame = self._word(end - rule.frame) if rule.frame else self._frame
        return self._go(back, end, frame)

    def _end_of_frame(self, rule: Rule) -> int | None:
        if rule.kind == lib.RULE_STACK:
            return self._stack + rule.n
        if rule.kind == lib.RULE_FRAME:
            return self._frame + rule.n
        if rule.kind == lib.RULE_PLT:
            return self._stack + (16 if self._instruction % 16 >= rule.n else 8)
        return self._word(self._frame - rule.n)

    def _leave_handler(self) -> bool:
        words = (self._word(self._stack + at) for at in (_SAVED_INSTRUCTION, _SAVED_STACK, _SAVED_FRAME))
        done = self._go(*words)
        self._is_interrupted = True
        return done

    def _by_frame_pointer(self) -> bool:
        if self._frame < self._stack or self._frame % 8:
            return False
        return self._go(self._word(self._frame + 8), self._frame + 16, self._word(self._frame))

    def _go(self, instruction: int | None, stack: int | None, frame: int | None) -> bool:
        if instruction is None or stack is None or frame is None:
            return False
        self._instruction, self._stack, self._frame = instruction, stack, frame
        self._is_interrupted = False
        return True

    def _word(self, address: int) -> int | None:
        if not self._at <= address <= self._at + len(self._memory) - 8:
            if not 0 <= address < 1 << 63:
                return None
            self._at, self._memory = address, self._program.read(address, _WINDOW)
            if len(self._memory) < 8:
                return None
        return int(struct.unpack_from("<Q", self._memory, address - self._at)[0])


__all__ = ["MOST_FRAMES", "NO_RULE", "Program", "Rule", "Stack", "Step", "unwind"]
