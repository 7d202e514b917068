"""What a child that has become a job's owner says of an exception: the names of its type, and its stack.

The stack is what was copied when it was thrown: by now the thread is elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Mapping
from typing import Any

from condor_joblens.profiling import unwind
from condor_joblens.profiling.elf import ElfError
from condor_joblens.profiling.exception_types import MOST_NAME, type_name
from condor_joblens.profiling.process import Process
from condor_joblens.profiling.symbols import Code, Files

MOST_FRAMES = 40
MOST_PREPARED = 100
MOST_MANGLED = 1000
"""Processes whose files are open, and bytes of a mangled name that are read."""

_COLD = re.compile(r" \[clone \.cold(?:\.\d+)?\]$|\.cold(?:\.\d+)?$")
"""What a function's name has behind it where the compiler has put what is rare, as throws are, elsewhere."""


class _Then(Code):
    """The code of a process, with its stack as it was."""

    def __init__(self, process: Process, files: Files, at: int, stack: bytes) -> None:
        super().__init__(process, files)
        self._at, self._stack = at, stack

    def read(self, address: int, size: int) -> bytes:
        """Memory that was copied, and no other."""
        if not self._at <= address < self._at + len(self._stack):
            return b""
        return self._stack[address - self._at :][:size]


class Exceptions:
    """Answers questions about what processes throw."""

    def __init__(self) -> None:
        self._files = Files()
        self._prepared: dict[int, Process] = {}

    def prepare(self, pid: int) -> dict[str, Any]:
        """Opens all that the process runs: it may be gone when its last exception is asked for."""
        process = Process(pid)
        for mapping in process.mappings:
            if mapping.is_code:
                self._files.of(process, mapping)
        while len(self._prepared) >= MOST_PREPARED:
            del self._prepared[next(iter(self._prepared))]
        self._prepared[pid] = process
        return {"prepared": pid}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The type as its author wrote it, its mangled names and those of its bases, and the frames."""
        process = self._process(int(request["thrown"]))
        known = [base64.b64decode(each) for each in request["known"]]
        names = [
            (text or self._name(process, int(address))).decode("utf-8", "replace")
            for address, text in zip(request["names"], known)
        ]
        instruction, stack, frame = (int(each) for each in request["registers"])
        code = _Then(process, self._files, stack, base64.b64decode(request["stack"]))
        found = unwind.unwind(code, instruction, stack, frame)
        # the first is __cxa_throw itself
        places = [code.name(step.address) for step in found.steps[1 : MOST_FRAMES + 1]]
        return {
            "type": type_name(names[0]) if names else "",
            "names": [name[:MOST_NAME] for name in names],
            "frames": [[_COLD.sub("", place.function)[:MOST_NAME], place.file[:MOST_NAME]] for place in places],
            "whole": found.is_whole and len(found.steps) <= MOST_FRAMES + 1,
        }

    def _process(self, pid: int) -> Process:
        process = Process(pid)
        return process if process.mappings else self._prepared.get(pid, process)

    def _name(self, process: Process, address: int) -> bytes:
        """A name that was not in memory: it is in the file."""
        mapping = process.mapping_at(address)
        elf = self._files.of(process, mapping) if mapping is not None else None
        if mapping is None or elf is None:
            return b""
        with contextlib.suppress(ElfError):
            return elf.text_at(address - mapping.start + mapping.offset, MOST_MANGLED)
        return b""
