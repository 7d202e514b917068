"""Lua 5.4 with a whitelisted environment, bounded in memory and instructions.

Four ways lead out of a naive sandbox. A loop around `pcall` swallows the error of the instruction hook. A coroutine has
no hook. One call of C pattern matching runs for ever without an instruction. And `__gc` runs outside all of it. So
policies see no pcall, coroutine, setmetatable, pattern or load function, and strings have no methods but the ones of
lua/host.lua. What still takes long in one C call (joining megabytes) is ended by the CPU budget of the process.

Lua never calls into Python, and no Python object gets into Lua: plain values go in before a rule is asked. A rule
that needs one more says so (`Missing`) and is asked again with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Union

from lupa.lua54 import LuaRuntime

from condor_joblens.common.errors import printable
from condor_joblens.policy.jobad import ERROR, ClassAdError, Value

MEMORY = 8 << 20  # bytes for all that is Lua's while a policy runs
RESERVE = 4 << 20  # more of them while values are put in: memory that is gone there ends the process
INSTRUCTIONS = 200_000  # of one rule, once: about 1 ms
MAX_LINE = 300  # characters of an error
MAX_VALUES = 2 << 20  # characters of all strings of one job that rules read


def part(name: str) -> str:
    """A file of lua/."""
    with open(os.path.join(os.path.dirname(__file__), "lua", name), encoding="utf-8") as file:  # pathlib takes 1 MB
        return file.read()


_HOST, _REGEX = part("host.lua"), part("regex.lua")


def open_runtime(memory: int, instructions: int) -> tuple[Any, Any]:
    """A Lua with the bounds above, and the host's functions in it: what policies and triggers stand on."""
    lua = LuaRuntime(
        register_eval=False,
        register_builtins=False,
        unpack_returned_tuples=True,
        attribute_filter=_refuse,
        max_memory=memory,
    )
    regex = lua.execute(_REGEX, name="=regex")
    return lua, lua.execute(_HOST, instructions, regex, name="=host")


class Group:
    """The type of GROUP."""


GROUP = Group()
"""What is found where a rule reads a group of numbers (`usage.Cpu`)."""

Plain = Union[Value, Group]


class PolicyError(Exception):
    """What a policy did wrong: file, line and rule (empty: the file itself)."""

    def __init__(self, file: str, line: int, rule: str, what: str) -> None:
        self.file, self.line, self.rule, self.what = file, line, rule, what
        super().__init__(f"{file}:{line}: " + (f'rule "{rule}": ' if rule else "") + what)


@dataclass(frozen=True)
class Rule:
    """One rule as its file declares it; its condition stays in Lua."""

    index: int  # in the order in which rules are asked, from 0
    file: str
    line: int
    name: str
    level: str | None  # a level's word, or `requested`
    cap: str | None
    period: float | None  # seconds
    for_seconds: float | None
    sinks: tuple[str, ...] | None
    priority: float | None
    max_jobs: float | None  # closer than basic, on a node
    max_share: float | None  # the same as a share of the node's jobs
    per: str | None  # for whom that is: `owner`, `group`, or all jobs together
    reason: str
    conditional: bool  # whether there are jobs that it does not match
    expression: str | None  # its condition, where it is a ClassAd expression
    paths: tuple[str, ...]  # what its condition looks at, where it is a table
    runs_code: bool  # whether its condition has a function of the policy's own, which may do anything
    literal_globs: tuple[tuple[str, str], ...] = ()  # (path, text) of texts with * or ? that are compared as they stand
    report: bool | None = None  # whether reports may come back with the job's output
    trace: str | None = None  # what is traced of the job, as +JobLensTrace has it


@dataclass(frozen=True)
class Missing:
    """A rule can't be answered without the value of this key."""

    key: str  # j:attribute, e:expression, s:slot fact, n:node fact, u:usage path, k:days:key


class LuaSandbox:
    """One Lua runtime with the rules of all files, each file in an environment of its own."""

    def __init__(self) -> None:
        self._lua, self._host = open_runtime(MEMORY + RESERVE, INSTRUCTIONS)
        self._marks = {id(ERROR): self._host.ERROR, id(GROUP): self._host.GROUP, id(None): self._host.ABSENT}
        self._match, self._begin, self._put = self._host.match, self._host.begin, self._host.put
        self.rules: list[Rule] = []

    def load(self, file: str, text: str) -> None:
        """Add the rules of a file. Raises PolicyError; none of its rules is there then."""
        self._lua.set_max_memory(MEMORY)
        try:
            before, mistake = _pair(self._host.load(file, text))
        except Exception as error:  # lupa raises of many kinds
            before, mistake = None, str(error)
        finally:
            self._lua.set_max_memory(MEMORY + RESERVE)
        if before is None:
            raise error_of(file, 1, "", mistake)
        self.rules += [_rule(index, self._host.rule(index + 1)) for index in range(before, self._host.count())]

    def unload(self, first: int) -> None:
        """Take the rules from `first` on back."""
        self._host.unload(first)
        del self.rules[first:]

    def begin(self, values: Mapping[str, Plain], hour: int, minute: int, weekday: int) -> None:
        """The job at hand is another: what is known of it by key, and its time; weekday 0 is Sunday."""
        table = self._lua.table_from({key: self._crossing(value) for key, value in values.items()})
        self._begin(table, hour, minute, weekday)

    def put(self, key: str, value: Plain) -> None:
        """One more value of the job at hand."""
        self._put(key, self._crossing(value))

    def match(self, rule: Rule) -> bool | Missing:
        """Whether a rule matches the job at hand. Raises PolicyError."""
        self._lua.set_max_memory(MEMORY)
        try:
            answer = self._match(rule.index + 1)
        except Exception as error:  # lupa raises of many kinds: memory gone outside of pcall, text that is not UTF-8
            answer = (None, None, str(error))
        finally:
            self._lua.set_max_memory(MEMORY + RESERVE)
        if isinstance(answer, bool):
            return answer
        if len(answer) == 2:
            return Missing(answer[1])
        raise error_of(rule.file, rule.line, rule.name, answer[2])

    def nearest(self, wrong: str, names: Iterable[str]) -> str:
        """`: did you mean X?`, where one of these names is near."""
        return str(self._host.nearest(wrong, self._lua.table_from(dict.fromkeys(names, True))))

    def trace(self) -> None:
        """Note from now on which values are read."""
        self._host.trace(True)

    def unmet(self) -> str:
        """Which part of the rule that was asked last does not hold, if it does not match."""
        return str(self._host.unmet())

    def reads(self) -> list[str]:
        """The keys that were read since `trace`, in order."""
        keys = self._host.reads()
        self._host.trace(False)
        return list(dict.fromkeys(keys.split("\0"))) if keys else []

    def _crossing(self, value: Plain) -> Any:
        kind = type(value)
        if kind is str or kind is int or kind is float or kind is bool:
            return value
        if isinstance(value, Mapping):
            return self._lua.table_from({name.lower(): self._crossing(item) for name, item in value.items()})
        if isinstance(value, list):
            return self._lua.table_from([self._crossing(item) for item in value])
        return self._marks[id(value)]


def text_size(value: Plain) -> int:
    """Characters of all strings in a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(name) + text_size(item) for name, item in value.items())
    return sum(map(text_size, value)) if isinstance(value, list) else 0


def _pair(answer: Any) -> tuple[Any, Any]:
    return answer if isinstance(answer, tuple) else (answer, None)


def _rule(index: int, told: Any) -> Rule:
    file, line, name, level, cap, period, for_seconds, sinks, priority, max_jobs, max_share, per, reason, *more = told
    conditional, expression, paths, runs_code, globs, report, trace = more
    return Rule(
        index, file, line, name, level, cap, period, for_seconds,
        None if sinks is None else tuple(filter(None, sinks.split("\n"))),
        priority, max_jobs, max_share, per, reason or "", conditional, expression,
        tuple(filter(None, paths.split("\n"))), runs_code,
        tuple((path, text) for path, _, text in (one.partition("\n") for one in globs.split("\n\n")) if path),
        report, trace,
    )  # fmt: skip


def error_of(file: str, line: int, rule: str, told: object) -> PolicyError:
    """What Lua has told of a file.

    Lua says file and line itself, but not when memory is gone or a function of the host fails.
    """
    text = told if isinstance(told, str) else "raised an error that is not a string"
    where, number, what = [*text.split(":", 2), "", ""][:3]
    if where == file and number.isdecimal():
        line, text = int(number), what.strip()
    elif where in ("host", "regex") and number.isdecimal():
        text = what.strip()
    prefix = f'rule "{rule}": '
    text = text[len(prefix) :] if rule and text.startswith(prefix) else text
    return PolicyError(file, line, rule, printable(text, MAX_LINE))


def _refuse(*_: object) -> str:
    raise AttributeError("policies see no Python objects")


__all__ = ["ERROR", "GROUP", "ClassAdError", "LuaSandbox", "Missing", "Plain", "PolicyError", "Rule", "text_size"]
