"""Lua 5.4 with a whitelisted environment, bounded in memory and instructions.

Four ways lead out of a naive sandbox: a loop around `pcall` swallows the error of the instruction hook;
a coroutine has no hook; one call of C pattern matching runs for ever without an instruction; `__gc` runs
outside all of it. So policies see no pcall, coroutine, setmetatable, pattern or load function, and strings
have no methods but the ones below. What still takes long in one C call (a sort, a concat) is ended by the
CPU budget of the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lupa.lua54 import LuaRuntime

from condor_joblens.errors import printable
from condor_joblens.policy.jobad import ClassAdError

MEMORY = 8 << 20  # bytes for all that is Lua's
INSTRUCTIONS = 1_000_000  # of one policy, once: about 2 ms
MAX_LINE = 300  # characters of an error

_HOST = """
local debug, load, pcall, setmetatable = debug, load, pcall, setmetatable
local pairs, rawget, select, type = pairs, rawget, select, type
local find, gmatch, lower = string.find, string.gmatch, string.lower
local instructions = ...
local ERROR = {}

local function pick(library, names)
    local picked = {}
    for name in gmatch(names, "%w+") do picked[name] = library[name] end
    return picked
end

local strings = pick(string, "byte char format len lower sub upper")
function strings.find(text, what, from) return find(text, what, from, true) end

local ranks = {off = 0, basic = 1, io = 2, profile = 3, trace = 4}
local function lowest(a, b) return ranks[a] <= ranks[b] and a or b end
local function highest(a, b) return ranks[a] >= ranks[b] and a or b end

local function environment()
    local env = pick(_G, "assert error ipairs next pairs select tonumber tostring type")
    env.math = pick(math, "abs ceil floor fmod huge max maxinteger min mininteger tointeger type")
    env.string = pick(strings, "byte char find format len lower sub upper")
    env.table = pick(table, "concat insert remove sort unpack")
    env.ERROR, env.lowest, env.highest = ERROR, lowest, highest
    return env
end

local function bounded(f, ...)
    local function stop() error("ran for more than " .. instructions .. " instructions", 2) end
    debug.sethook(stop, "", instructions)
    local ok, first, second = pcall(f, ...)
    debug.sethook()
    return ok, first, second
end

local function ad(attributes)
    local names = {}
    for name, value in pairs(attributes) do
        if type(name) == "string" then names[lower(name)] = name end
        if type(value) == "table" and value ~= ERROR then ad(value) end
    end
    return setmetatable(attributes, {__index = function(_, name)
        local written = type(name) == "string" and names[lower(name)]
        if written then return rawget(attributes, written) end
    end})
end

local function compile(name, text)
    local chunk, mistake = load(text, "@" .. name, "t", environment())
    if not chunk then return nil, mistake end
    local ok, decide = bounded(chunk)
    if not ok then return nil, decide end
    if type(decide) ~= "function" then
        return nil, name .. ":1: does not return a function(job, slot, level)"
    end
    return decide, debug.getinfo(decide, "S").linedefined
end

getmetatable("").__index = strings
return {compile = compile, bounded = bounded, ad = ad, ERROR = ERROR}
"""


class PolicyError(Exception):
    """One line that begins with the policy's file and line: `20-site.lua:3: ...`."""


class Policy:
    """One compiled policy file."""

    def __init__(self, name: str, line: int, function: Any) -> None:
        self.name = name
        self.line = line  # at which its function begins
        self.function = function

    def error(self, message: object) -> PolicyError:
        """The error `message` of this policy; Lua says file and line itself, but not when memory is gone."""
        text = message if isinstance(message, str) else "raised an error that is not a string"
        if not text.startswith(f"{self.name}:"):
            text = f"{self.name}:{self.line}: {text}"
        return PolicyError(printable(text, MAX_LINE))


class Sandbox:
    """One Lua runtime, in which every policy has an environment of its own."""

    def __init__(self) -> None:
        self._lua = LuaRuntime(
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            attribute_filter=_refuse,
            max_memory=MEMORY,
        )
        self._host = self._lua.execute(_HOST, INSTRUCTIONS)

    def compile(self, name: str, text: str) -> Policy:
        """The policy in the file `name`. Raises PolicyError."""
        policy = Policy(name, 1, None)
        try:
            policy.function, told = self._host.compile(name, text)
        except Exception as error:  # lupa raises of many kinds
            raise policy.error(str(error)) from None
        if policy.function is None:
            raise policy.error(told)
        policy.line = told
        return policy

    def ad(self, attributes: Mapping[str, Any]) -> Any:
        """A Lua table of plain values, looked up without regard to case, as ClassAds are."""
        return self._host.ad(self._lua.table_from(self._crossing(attributes), recursive=True))

    def decide(self, policy: Policy, job: Any, slot: Any, level: Mapping[str, str | None]) -> tuple[Any, Any]:
        """What the policy's function returns: a level or None, and a reason. Raises PolicyError."""
        try:
            asked = self._lua.table_from(level)
            ok, answer, reason = self._host.bounded(policy.function, job, slot, asked)
        except Exception as error:  # a string that is not UTF-8, memory gone outside of pcall
            raise policy.error(str(error)) from None
        if not ok:
            raise policy.error(answer)
        return answer, reason

    def _crossing(self, value: Any) -> Any:
        if isinstance(value, ClassAdError):
            return self._host.ERROR
        if isinstance(value, Mapping):
            return {name: self._crossing(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._crossing(item) for item in value]
        return value


def _refuse(*_: object) -> str:
    raise AttributeError("policies see no Python objects")
