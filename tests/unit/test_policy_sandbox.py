"""What a policy can see and do, the ways out of a naive sandbox, and mistakes told with file and line."""

from __future__ import annotations

import pytest

from condor_joblens.policy import jobad
from condor_joblens.policy.sandbox import PolicyError, Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox()


def answer(sandbox: Sandbox, body: str, ad: bytes = b"Owner = undefined", **level: str) -> object:
    """What a policy with this body answers for this ad."""
    policy = sandbox.compile("20-site.lua", f"return function(job, slot, level)\n{body}\nend")
    job = sandbox.ad(jobad.evaluate(jobad.parse(ad)))
    return sandbox.decide(policy, job, sandbox.ad({"Name": "slot1_1@node"}), level)[0]


@pytest.mark.parametrize(
    ("escape", "missing"),
    [
        ("while true do pcall(function() while true do end end) end", "pcall"),
        ("while true do xpcall(function() while true do end end, print) end", "xpcall"),
        ("return coroutine.wrap(function() while true do end end)()", "coroutine"),
        ('return string.rep("a", 50):match(string.rep("a?", 50))', "rep"),
        ('return ("a"):rep(50)', "rep"),
        ('return ("aaa"):match("a*")', "match"),
        ('return ("aaa"):gsub("a*", "b")', "gsub"),
        ('return string.gmatch("aaa", "a*")', "gmatch"),
        ("setmetatable({}, {__gc = function() while true do end end})", "setmetatable"),
        ('return getmetatable("").__index', "getmetatable"),
        ('return load("return _G")()', "load"),
        ('return require("os")', "require"),
        ('return os.execute("id")', "os"),
        ('return io.open("/etc/passwd")', "io"),
        ("debug.sethook()", "debug"),
        ("collectgarbage('stop')", "collectgarbage"),
        ('return python.eval("1")', "python"),
        ("return string.dump(function() end)", "dump"),
    ],
)
def test_no_way_out(sandbox: Sandbox, escape: str, missing: str) -> None:
    with pytest.raises(PolicyError, match=rf"^20-site\.lua:2: attempt to .* nil value \(.*'{missing}'\)"):
        answer(sandbox, escape)


def test_what_a_policy_sees_is_this_and_no_more(sandbox: Sandbox) -> None:
    list_all = 'local all = "" for name in pairs(_ENV) do all = all .. " " .. name end return all'
    seen = answer(sandbox, list_all)
    assert isinstance(seen, str)
    functions = "assert error ipairs next pairs select tonumber tostring type lowest highest"
    assert set(seen.split()) == {*functions.split(), "ERROR", "math", "string", "table"}


def test_find_knows_no_patterns(sandbox: Sandbox) -> None:
    assert answer(sandbox, 'return tostring(("a.b"):find(".")) .. tostring(("aaa"):find("a?"))') == "2nil"


@pytest.mark.parametrize(
    "loop",
    [
        "while true do end",
        "local function f() return f() end return f()",
        "table.sort({1, 2, 3}, function() while true do end end)",
    ],
)
def test_an_endless_loop_ends(sandbox: Sandbox, loop: str) -> None:
    with pytest.raises(PolicyError, match=r"^20-site\.lua:2: ran for more than 1000000 instructions"):
        answer(sandbox, loop)


@pytest.mark.parametrize(
    "bomb",
    [
        'local s = "xxxxxxxx" while true do s = s .. s end',
        "local t = {} for i = 1, 1e9 do t[i] = {i} end",
        "local function f() return 1 + f() end return f()",
    ],
)
def test_memory_is_bounded_and_the_next_policy_has_it_again(sandbox: Sandbox, bomb: str) -> None:
    with pytest.raises(PolicyError, match=r"^20-site\.lua:\d+: (not enough memory|stack overflow|ran for)"):
        answer(sandbox, bomb)
    assert answer(sandbox, 'return "io"') == "io"


def test_a_file_that_loops_when_it_is_read_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(PolicyError, match=r"^x\.lua:2: ran for more than"):
        sandbox.compile("x.lua", "\nwhile true do end")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("return function(job)\n  if job then then\nend", r"^x\.lua:2: unexpected symbol near 'then'$"),
        ("", r"^x\.lua:1: does not return a function"),
        ("return 1", r"^x\.lua:1: does not return a function"),
        ("error({})", r"^x\.lua:1: raised an error that is not a string$"),
        ("\x1bLua", r"^x\.lua:1: attempt to load a binary chunk"),
    ],
)
def test_a_mistake_is_told_with_file_and_line(sandbox: Sandbox, text: str, error: str) -> None:
    with pytest.raises(PolicyError, match=error):
        sandbox.compile("x.lua", text)


def test_an_error_is_one_bounded_printable_line(sandbox: Sandbox) -> None:
    long = 'string.format("%99s%99s%99s", "x", "y", "z")'
    with pytest.raises(PolicyError) as caught:
        answer(sandbox, f'error("a\\n\\27[31m" .. {long})')
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 300


def test_policies_share_no_globals(sandbox: Sandbox) -> None:
    sandbox.compile("10-a.lua", "mine = 1; string.lower = nil; return function() end")
    assert answer(sandbox, 'return tostring(mine) .. string.lower("A") .. ("B"):lower()') == "nilab"


AD = b"""
Owner = "alice"
RequestCpus = 2 + 2
Undefined = NoSuchAttribute
Broken = 1 / 0
NotUtf8 = substr("\xc3\xa9", 0, 1)
List = { 1, "two", error, 3 * 1 }
Nested = [ Inner = [ Deep = "yes" ] ]
Since = absTime("2020-01-01T00:00:00Z")
Truth = 1 < 2
"""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("job.Owner", "alice"),
        ("job.oWNER", "alice"),
        ("job.REQUESTCPUS", 4),
        ("job.Undefined == nil", True),
        ("job.NeverHeardOf == nil", True),
        ("job[1] == nil", True),
        ("job.Broken == ERROR", True),
        ("job.Undefined == ERROR", False),
        ("job.NotUtf8 == ERROR", True),
        ("job.List[2]", "two"),
        ("job.List[3] == ERROR", True),
        ("job.List[4]", 3),
        ("job.nested.inner.deep", "yes"),
        ("job.Since", 1577836800),
        ("job.Truth", True),
        ("slot.name", "slot1_1@node"),
        ("level.requested == nil", True),
        ("lowest('trace', 'io')", "io"),
        ("highest('trace', 'io')", "trace"),
    ],
)
def test_ads_are_plain_tables_looked_up_without_regard_to_case(
    sandbox: Sandbox, expression: str, expected: object
) -> None:
    assert answer(sandbox, f"return {expression}", AD) == expected
