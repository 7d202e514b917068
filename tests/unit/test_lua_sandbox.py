"""What a policy can see and do, the ways out of a naive sandbox, and mistakes told with file and line."""

from __future__ import annotations

import datetime
import fnmatch
import math
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.policy.engine import Engine, job_of
from condor_joblens.policy.jobad import ERROR, JobAd
from condor_joblens.policy.lua_sandbox import LuaSandbox, Missing, Plain, PolicyError

ASKED: dict[str, Any] = {"slot": {"Name": "slot1_1@node"}, "node": {"Cpus": 64}, "default": "basic", "max": "trace"}
NOON = datetime.datetime(2026, 11, 21, 12, 0).timestamp()  # a Saturday, by the local clock


def rule(**fields: str) -> str:
    """The text of a rule; the fields are Lua."""
    told = ", ".join(f"{name} = {value}" for name, value in {"level": '"io"', **fields}.items())
    return f'rule "site" {{ {told} }}'


def decide(text: str, ad: bytes = b'Owner = "alice"', now: float = NOON, **asked: Any) -> dict[str, Any]:
    """What one file decides."""
    engine = Engine()
    errors = engine.load([("20-site.lua", text)], lambda doing: None)
    assert errors == []
    return engine.decide(job_of(JobAd(ad), {**ASKED, **asked}, now), now, None)


def matches(when: str, ad: bytes = b'Owner = "alice"', **asked: Any) -> bool:
    """Whether a rule with this condition matches."""
    answer = decide(rule(when=when), ad, **asked)
    assert answer["errors"] == []
    return bool(answer["level"] == "io")


def fault(body: str, ad: bytes = b'Owner = "alice"') -> str:
    """What is wrong with a rule whose condition has this body."""
    (error,) = decide(rule(when=f"function(job, slot, node, usage)\n{body}\nend"), ad)["errors"]
    assert (error["file"], error["rule"]) == ("20-site.lua", "site")
    return f"{error['line']}: {error['what']}"


def mistake(text: str) -> str:
    """Why a file is set aside."""
    with pytest.raises(PolicyError) as caught:
        LuaSandbox().load("20-site.lua", text)
    return str(caught.value)


# Ways out.


@pytest.mark.parametrize(
    ("escape", "missing"),
    [
        ("while true do pcall(function() while true do end end) end", "pcall"),
        ("while true do xpcall(function() while true do end end, print) end", "xpcall"),
        ("return coroutine.wrap(function() while true do end end)()", "coroutine"),
        ('return ("a"):rep(50)', "string method rep"),
        ('return string.rep("a", 1e9)', "string.rep"),
        ('return ("aaa"):match("a*")', "string method match"),
        ('return ("aaa"):gsub("a*", "b")', "string method gsub"),
        ('return string.gmatch("aaa", "a*")', "string.gmatch"),
        ('return ("x"):pack("z")', "string method pack"),
        ("setmetatable({}, {__gc = function() while true do end end})", "setmetatable"),
        ("local x <close> = setmetatable({}, {__close = print})", "setmetatable"),
        ('return getmetatable("").__index', "getmetatable"),
        ("return rawset(job, 1, 2)", "rawset"),
        ("return rawget(job, 1)", "rawget"),
        ("return next(_ENV)", "next"),
        ('return load("return _G")()', "load"),
        ("return dofile()", "dofile"),
        ('return require("os")', "require"),
        ("return package.loaded", "package"),
        ('return os.execute("id")', "os"),
        ('return io.open("/etc/passwd")', "io"),
        ("debug.sethook()", "debug"),
        ("collectgarbage('stop')", "collectgarbage"),
        ('print(("x"):lower())', "print"),
        ('return python.eval("1")', "python"),
        ("return utf8.char(1e9)", "utf8"),
        ("return string.dump(function() end)", "string.dump"),
        ("return math.random()", "math.random"),
        ("return _G._G", "_G"),
        ("return table.move({}, 1, 1e9, 2)", "table.move"),
    ],
)
def test_no_way_out(escape: str, missing: str) -> None:
    assert re.match(rf"2: {re.escape(missing)} is not known here", fault(escape))


def test_what_a_policy_sees_is_this_and_no_more() -> None:
    known = (
        "assert error ipairs pairs select tonumber tostring type math string table rule job slot node usage classad "
    )
    known += "is_error under glob matches at_least at_most above below one_of during sample seen"
    listing = "local all, count = {}, 0 for name in pairs(_ENV) do all[name], count = true, count + 1 end "
    names = ", ".join(f'"{name}"' for name in known.split())
    check = f"for _, name in ipairs {{ {names} }} do assert(all[name], name) end assert(count == {len(known.split())})"
    LuaSandbox().load("x.lua", f"{listing} {check} {rule()}")


@pytest.mark.parametrize(
    "loop",
    [
        "while true do end",
        "::again:: goto again",
        "repeat until false",
        "for i = 1, math.huge do end",
        "for i = math.maxinteger - 1, math.maxinteger do i = 0 while i == 0 do end end",
        "local function f() return f() end return f()",
        "table.sort({1, 2, 3}, function() while true do end end)",
        'return ("a"):matches "(((((a{1,9}){1,9}){1,9}){1,9}){1,9}){1,9}" or job.Owner:glob(("*a"):upper()) or f()',
        "local t = {} for i = 1, 1e7 do table.insert(t, 1, i) end",
        "local t = {} for i = 1, 1e7 do table.remove(t, 1) end",
        "error({[{}] = 1})",
        "local t = {} t.t = t error(t)",
        "for _ in function() return 1 end do end",
        "return sample(0 / 0)",
        "return table.unpack({}, 1, 1e7)",
        "return table.unpack({}, -math.maxinteger, math.maxinteger)",
        'return string.format("%99999d", 1)',
        'return string.format("%.99999f", 1)',
        "return 1 // 0",
        "return 1 % 0",
        "return math.mininteger // 0 | 1",
        "local x <close> = 42",
        "local x <const> = {} x()",
        "table.sort({3, 1, 2, 5, 4, 9, 8}, function(a, b) return true end) error('sorted')",
        "table.concat({{}})",
        "return {} .. {}",
        "return {} < {}",
        "for i = 1, 10, 0 do end",
        "job.Owner = 'mallory'",
        "slot.Name.x.y = 1",
        "return job:eval(1)",
        "for name in pairs(job) do end",
    ],
)
def test_what_runs_wild_ends_in_an_error_and_harms_no_other_rule(loop: str) -> None:
    engine = Engine()
    bad = rule(when=f"function(job, slot)\n{loop}\nend")
    assert engine.load([("10-bad.lua", bad), ("20-good.lua", 'rule "good" { cap = "off" }')], lambda doing: None) == []
    answer = engine.decide(job_of(JobAd(b'Owner = "alice"'), ASKED, NOON), NOON, None)
    (error,) = answer["errors"]
    assert (error["file"], error["rule"]) == ("10-bad.lua", "site") and error["line"] in (1, 2)
    assert (answer["level"], answer["policy"]) == ("off", "good")


@pytest.mark.parametrize(
    "bomb",
    [
        'local s = "xxxxxxxx" while true do s = s .. s end',
        "local t = {} for i = 1, 1e9 do t[i] = {i} end",
        "local t = {} for i = 1, 1e6 do t[i] = i .. 'x' end",
        "local function f() return 1 + f() end return f()",
        'local s = "x" while true do s = string.format("%s%s", s, s) end',
        'local s = "x" while true do s = s:upper() .. s:lower() end',
        "local t = {1} while true do t = {table.unpack(t)} for i = 1, #t do t[#t + 1] = i end end",
    ],
)
def test_memory_is_bounded_and_the_next_rule_has_it_again(bomb: str) -> None:
    engine = Engine()
    again = "local t = {} for i = 1, 9999 do t[i] = i end return #t == 9999"
    again = f'rule "again" {{ cap = "off", when = function() {again} end }}'
    engine.load([("10.lua", rule(when=f"function()\n{bomb}\nend")), ("20.lua", again)], lambda doing: None)
    for _ in range(3):
        answer = engine.decide(job_of(JobAd(b"A = 1"), ASKED, NOON), NOON, None)
        (error,) = answer["errors"]
        assert re.match(r"not enough memory|stack overflow|ran for more than|too many results", error["what"])
        assert answer["policy"] == "again"


def test_what_a_policy_hoards_over_many_jobs_does_not_end_the_process() -> None:
    engine = Engine()
    hoard = "local all = {} " + rule(when="function() for i = 1, 9999 do all[#all + 1] = {i} end return true end")
    engine.load([("10.lua", hoard)], lambda doing: None)
    ad = b'Owner = "' + b"x" * 60_000 + b'"'
    answers = [engine.decide(job_of(JobAd(ad), ASKED, NOON), NOON, None) for _ in range(60)]
    assert answers[0]["errors"] == []
    assert "not enough memory" in answers[-1]["errors"][0]["what"]


def test_policies_share_no_globals() -> None:
    first = "mine = 1; string.lower = nil; math.huge = 0; " + rule()
    second = 'rule "two" { cap = "off", when = function() return mine == nil end }'
    engine = Engine()
    engine.load([("10.lua", first), ("20.lua", second)], lambda doing: None)
    (error,) = engine.decide(job_of(JobAd(b"A = 1"), ASKED, NOON), NOON, None)["errors"]
    assert error["what"].startswith("mine is not known here")


def test_no_string_is_too_long_to_be_read_and_a_longer_one_is_an_error() -> None:
    assert matches("function(job) return #job.Long == 60000 end", b'Long = "' + b"x" * 60_000 + b'"')
    assert matches("function(job) return is_error(job.Long) end", b'Long = "' + b"x" * 1_000_000 + b'"')


# Mistakes.


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('rule "a" { levl = "io" }', '1: "levl" is nothing that a rule says: did you mean level?'),
        (
            'rule "a" {\n  level = "io",\n  forseconds = 3,\n}',
            '3: "forseconds" is nothing that a rule says: did you mean for_seconds?',
        ),
        ('rule "a" { level = "ioo" }', '1: level = "ioo" is no level (off, basic, io, profile, trace, or requested)'),
        ('rule "a" { cap = "requested" }', '1: cap = "requested" is no level (off, basic, io, profile or trace)'),
        ('rule "a" { level = 7 }', "1: level = 7 is no level (off, basic, io, profile, trace, or requested)"),
        ('rule "a" {\n level = "io",\n sample = 2 }', "3: sample = 2 is no number from 0 to 1"),
        ('rule "a" { period = -1 }', "1: period = -1 is no number from 0.1 to 3600"),
        ('rule "a" { period = 0/0 }', "1: period = -nan is no number from 0.1 to 3600"),
        ('rule "a" { period = "5" }', '1: period = "5" is no number from 0.1 to 3600'),
        ('rule "a" { level = "io", for_seconds = 0 }', "1: for_seconds = 0 is no number from 1 to 2592000"),
        ('rule "a" { level = "io", when = 3 }', "1: when = 3 is no function, ClassAd expression or table of tests"),
        ('rule "a" { level = "io", when = { "x" } }', "1: when has a test without an attribute's name"),
        (
            'rule "a" { level = "io", during = "9-5" }',
            '1: during = "9-5" takes hours such as "22:00-06:00" or "mon-fri 08:00-18:00"',
        ),
        ('rule "a" { report = "no" }', '1: report = "no" is neither true nor false'),
        ('rule "a" { sinks = "kafka" }', '1: sinks = "kafka" is no list of at most 16 names of sinks'),
        ('rule "a" { level = "io", reason = {} }', "1: reason = a table is no text of at most 120 bytes"),
        (
            'rule "a" { when = "true" }',
            "1: decides nothing: give it a level, cap, period, sinks, report, trace, priority, max_jobs or max_share",
        ),
        ('rule "a" { level = "io",\n per = "owner" }', "2: per belongs to a quota: give it max_jobs or max_share"),
        ('rule "a" { max_jobs = 1, per = "slot" }', '1: per = "slot" is neither "owner" nor "group"'),
        ('rule "a" { max_jobs = -1 }', "1: max_jobs = -1 is no number from 0 to 16384"),
        ('rule "a" { max_share = 10 }', "1: max_share = 10 is no number from 0 to 1"),
        ('rule "a" { "io" }', "1: has an entry without a name"),
        ('rule "a" "b"', "1: takes a table { ... }, not a string"),
        ("rule {}", "1: a rule's name is 1 to 60 printable ASCII characters in quotes"),
        ('rule "a"', '1: a rule says nothing: write rule "name" { ... }'),
        ('\nruel "a" {}', "2: ruel is not known here: did you mean rule?"),
        ('\nrule "a" { when = { X = undr "b" }, cap = "io" }', "2: undr is not known here: did you mean under?"),
        ('rule "a" { when = { X = under(3) }, cap = "io" }', "1: under takes a string, not number"),
        (
            'rule "a" { cap = "io" }\nrule "a" { cap = "io" }',
            "2: is declared in 20-site.lua:1 already: names are told to users, so each has its own",
        ),
        ("", '1: declares no rule: write rule "name" { ... }'),
        ("return function() end", '1: declares no rule: write rule "name" { ... }'),
        ("x =\n= 3", "2: unexpected symbol near '='"),
        ('\nrule "a" { level = io }', '2: io is not known here: write it in quotes, "io"'),
        (
            '\nrule "a" { when = { RequestCpus > 8 }, level = "io" }',
            "2: RequestCpus is not known here: an attribute of the job is job.RequestCpus in a function(job), and "
            "RequestCpus = ... in a table of tests",
        ),
        (
            '\nrule "a" {\n when = { slot.Activity == "Suspended" }, level = "io" }',
            "3: slot.activity is known only when a rule is asked: write it in a function(job, slot, node, usage), or "
            'as { ["slot.activity"] = ... }',
        ),
        (
            'local n = job:eval("A")',
            "1: job:eval is known only when a rule is asked: write it in a function(job, slot, node, usage)",
        ),
        (
            'rule "a" { level = "io",\n when = "JobUniverse == 5 && usage.IdleSeconds > 600" }',
            "2: when asks the job's ad, which has no usage.IdleSeconds: write a table, "
            '{ ["usage.IdleSeconds"] = ... }, or a function',
        ),
        (
            '\nrule "a" { when = { X = matches "(a" }, level = "io" }',
            "2: regular expression has a ( without ) at character 4",
        ),
        ("\nrule a {}", "2: syntax error near 'a': a rule's name stands in quotes"),
        ('rule "a" (\nlevel = "io")', "2: ')' expected (to close '(' at line 1) near '=': a rule says { ... }"),
        (
            'rule "a" { cap = "io"\nlevel = "io" }',
            "2: '}' expected (to close '{' at line 1) near 'level': is a comma missing before it, or a } further up?",
        ),
        (
            'rule "a" {\nlevel = "io",',
            "2: unexpected symbol near <eof>: each { has its }, each function and if its end",
        ),
        (
            'rule "a" { when = function(job)\nreturn job.X == 1, level = "io" }',
            "2: 'end' expected (to close 'function' at line 1) near '=': each function and if has its end, and "
            "equal is ==",
        ),
        (
            'rule "a" { when = function(job) if job.X then return true end,\nlevel = "io" }',
            "1: unexpected symbol near ',': is a value or an end missing before it?",
        ),
        ('rule "a" { level = "io" } end', "1: <eof> expected near 'end': there is one end too many"),
        (
            'rule "a" {\n level = "io }\n',
            "2: unfinished string near '\"io }': a text ends on its line, with the quote it began with",
        ),
        (
            'rule "a" { when = {\nusage.IdleSeconds = above(600) }, level = "io" }',
            "2: '}' expected (to close '{' at line 1) near '=': a name with dots stands in brackets, "
            '["usage.IdleSeconds"] = ...',
        ),
        (
            'rule "a" { when = function(job)\nif job.X = 1 then return true end end, level = "io" }',
            "2: 'then' expected near '=': equal is ==",
        ),
        ("# a comment", "1: unexpected symbol near '#': a comment begins with --"),
        ("// a comment", "1: unexpected symbol near '//': a comment begins with --"),
        (
            'rule "a" { when = function(job) return job.X != 1 end }',
            "1: 'end' expected near '!': not equal is ~=, and not is not",
        ),
        (
            'rule "a" { when = function(job) return job.X && job.Y end }',
            "1: unexpected symbol near '&': && is and, || is or",
        ),
        ("error({})", "1: raised an error that is not a string"),
        ("\x1bLua", "1: attempt to load a binary chunk (mode is 't')"),
        ("\nwhile true do end", "2: ran for more than 200000 instructions"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_the_nearest_right_name(text: str, told: str) -> None:
    found = mistake(text).replace("= nan", "= -nan")
    assert found.replace('rule "a": ', "", 1) == f"20-site.lua:{told}"


def test_a_file_with_a_mistake_leaves_no_rule_behind() -> None:
    sandbox = LuaSandbox()
    with pytest.raises(PolicyError):
        sandbox.load("10.lua", 'rule "good" { cap = "io" } rule "bad" { cap = "x" }')
    sandbox.load("20.lua", 'rule "good" { cap = "off" }')
    assert [(rule.file, rule.name, rule.cap, rule.index) for rule in sandbox.rules] == [("20.lua", "good", "off", 0)]


def test_an_error_is_one_bounded_printable_line() -> None:
    long = 'string.format("%99s%99s%99s", "x", "y", "z")'
    told = fault(f'error("a\\n\\27[31m" .. {long})')
    assert told.isprintable() and len(told) <= 310


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.text(max_size=80) | st.text("rule\"{}=,level'io()\n ", max_size=60))
def test_any_text_is_a_policy_or_a_mistake(text: str) -> None:
    try:
        LuaSandbox().load("x.lua", text)
    except PolicyError as error:
        assert str(error).startswith("x.lua:") and str(error).isprintable()


# Ads.

AD = b"""
Owner = "alice"
RequestCpus = 2 + 2
Undefined = NoSuchAttribute
Broken = 1 / 0
List = { 1, "two", error, undefined, 3 * 1 }
Nested = [ Inner = [ Deep = "yes" ]; L = {7} ]
Since = absTime("2020-01-01T00:00:00Z")
Truth = 1 < 2
Untruth = false
While = 1
end = 2
AcctGroup = "group_cms.prod"
"""


@pytest.mark.parametrize(
    "holds",
    [
        'job.Owner == "alice"',
        'job.oWNER == "alice"',
        "job.REQUESTCPUS == 4",
        "job.Undefined == nil",
        "job.NeverHeardOf == nil",
        "job[1] == nil",
        "is_error(job.Broken) and job.Broken == classad.error",
        "not is_error(job.Undefined)",
        'job.List[2] == "two"',
        "is_error(job.List[3])",
        "job.List[4] == nil",
        "job.List[5] == 3 and #job.List == 5",
        'job.nested.inner.deep == "yes"',
        "job.Nested.L[1] == 7",
        "job.Since == 1577836800",
        "job.Truth == true and job.Untruth == false",
        "job.While == 1 and job['end'] == 2",
        'job:eval("RequestCpus * 2") == 8',
        'job:eval("strcat(Owner, 1)") == "alice1"',
        'job:eval("NoSuch > 1") == nil',
        'is_error(job:eval("1 +"))',
        'job:eval("Nested.L[0]") == 7',
        'slot.name == "slot1_1@node" and node.Cpus == 64 and node.Nothing == nil',
        "usage == usage and usage.Cpu.RecentCores == nil",
        # what is undefined stays undefined, and no comparison with it holds
        "not (job.NoSuch > 1) and not (job.NoSuch <= 1) and not (1 < job.NoSuch)",
        "job.NoSuch + 1 == nil and 2 * job.NoSuch == nil and -job.NoSuch == nil",
        'job.NoSuch.There == nil and job.NoSuch:under "x" == nil',
        "is_error(2 * job.Broken) and is_error(job.Broken .. job.NoSuch) and job.Owner .. job.NoSuch == nil",
        # and so is what is of another type than a policy thinks
        "not (job.Owner > 3) and not (3 <= job.Owner) and not (job.Truth < 1) and not (job.List > 1)",
        "is_error(job.Owner * 2) and is_error(job.Truth + 1) and is_error(job.List + 1) and is_error(2^63 | 1)",
        'is_error(job.RequestCpus:under "x") and is_error(job.Truth.x) and is_error(job.List .. "x")',
        "not (job.Broken > 1) and is_error(job.Broken + 1) and is_error(job.Broken.x)",
        # helpers
        'job.AcctGroup:under "group_cms" and job.AcctGroup:under "GROUP_CMS.PROD"',
        'not job.AcctGroup:under "group_c" and not job.AcctGroup:under "group_cms.prod.x"',
        'job.AcctGroup:glob "*_cms.*" and not job.AcctGroup:glob "*_atlas.*"',
        'job.AcctGroup:matches "^group_(cms|atlas)[.]" and not job.AcctGroup:matches "^cms"',
        'job.Owner:one_of { "bob", "Alice" } and not job.Owner:one_of {}',
        '("a.b"):find(".") == 2 and ("aaa"):find("a?") == nil',
        "sample(1) and not sample(0)",
    ],
)
def test_ads_are_what_classads_mean(holds: str) -> None:
    assert matches(f"function(job, slot, node, usage) return {holds} end", AD)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ('"RequestCpus > 3 && Owner == \\"ALICE\\""', True),
        ('"NoSuch > 3"', False),
        ('"NoSuch =?= undefined"', True),
        ('"1/0"', False),
        ('"RequestCpus"', False),
        ('{ owner = "ALICE", RequestCpus = 4, Truth = true }', True),
        ('{ Owner = { "bob", "alice" } }', True),
        ('{ Owner = one_of { "bob" } }', False),
        ("{ RequestCpus = at_least(4) }", True),
        ("{ RequestCpus = above(4) }", False),
        ("{ RequestCpus = at_most(4), Owner = glob 'a*' }", True),
        ("{ RequestCpus = below(4) }", False),
        ("{ NoSuch = below(4) }", False),
        ("{ Broken = below(4) }", False),
        ("{ Broken = classad.error }", True),
        ('{ AcctGroup = under "group_cms" }', True),
        ('{ AcctGroup = matches "prod$" }', True),
        ('{ ["Nested.Inner.Deep"] = "yes", ["slot.Name"] = glob "slot1*", ["node.Cpus"] = 64 }', True),
        ('{ ["usage.Cpu.RecentCores"] = below(0.5) }', False),
        ("{ RequestCpus = function(n) return n % 2 == 0 end }", True),
        ("{}", True),
    ],
)
def test_a_condition_is_an_expression_a_table_or_a_function(when: str, expected: bool) -> None:
    assert matches(when, AD) is expected


def test_usage_is_read_by_path_and_absent_numbers_are_undefined() -> None:
    usage = {"Cpu.RecentCores": 0.02, "IdleSeconds": 700, "Io.Calls": math.nan}
    idle = "function(job, slot, node, usage) return usage.cpu.recentcores < 0.1 and usage.IdleSeconds > 600 end"
    assert matches(idle, usage=usage)
    assert not matches(idle)
    assert matches("function(_, _, _, usage) return usage.Io.Calls == nil and usage.Tcp == nil end", usage=usage)
    assert matches('{ ["usage.Cpu.RecentCores"] = below(0.1) }', usage=usage)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.just(ERROR),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text("abcXYZ_", min_size=1, max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)


READ = """
return {
    item = function(t, k) return t[k] end,
    length = function(t) return #t end,
    is_error = function(t) return type(t) == "table" and tostring(t) == "error" end,
}
"""


def back(value: Any, like: Plain, host: Any) -> Any:
    """What a Lua value is in Python, asked by the ways of a policy; `like` says which keys to look for."""
    if isinstance(like, list):
        assert host.length(value) == len(like)
        return [back(host.item(value, i + 1), item, host) for i, item in enumerate(like)]
    if isinstance(like, dict):
        return {name: back(host.item(value, name.upper()), item, host) for name, item in like.items()}
    return ERROR if host.is_error(value) else value


@pytest.mark.slow
@given(PLAIN)
def test_any_value_survives_the_way_into_lua_and_back(value: Plain) -> None:
    if isinstance(value, dict):
        value = {name: item for name, item in value.items() if list(map(str.lower, value)).count(name.lower()) == 1}
    _SANDBOX.begin({"j:value": value}, 0, 0, 0)
    read = _SANDBOX._lua.execute(READ)
    assert same(back(_SANDBOX._host.job.Value, value, read), value)


def same(got: Any, value: Any) -> bool:
    if isinstance(value, dict):
        return all(same(got[name], item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(same, got, value))
    return type(got) is type(value) and bool(got == value)


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.text("abcXYZ", min_size=1, max_size=4), st.text(max_size=30)), max_size=8))
def test_any_ad_is_read_or_refused(lines: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{name} = {value}" for name, value in lines)
    try:
        ad = JobAd(text.encode(errors="surrogateescape") if text.isascii() else text.encode(errors="replace"))
    except ValueError:
        return
    for name in ad:
        ad.value(name)


LAYOUT = st.sampled_from([" = ", "=", " =", "= ", "\t=\t", "  =  ", "", "\r", "\v = ", " = = "])


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.sampled_from(["", " ", "\t", "x "]), st.text("abAB", max_size=2), LAYOUT), max_size=6))
def test_every_layout_means_what_htcondors_own_means(lines: list[tuple[str, str, str]]) -> None:
    """Only HTCondor's own is read without a regular expression; this is that one."""
    text = "\n".join(f"{blank}{name}{equals}{number}" for number, (blank, name, equals) in enumerate(lines))
    wanted = {name.lower(): value for name, value in re.findall(r"(?m)^[ \t]*([^\s=]+)[ \t]*=[ \t]*(.*)$", text)}
    try:
        ad = JobAd(text.encode())
    except ValueError:
        assert not wanted
        return
    for name in ("a", "b", "ab", "ba", "aa", "bb"):
        assert ad._expression(name) == wanted.get(name, "").strip()


def test_an_attribute_that_is_no_expression_is_an_error_and_the_others_are_there() -> None:
    ad = JobAd(
        b"A = = 1\nB = 2\nC = B + 1\nD = A\nE = {A, B}\ngarbage\nF = MY.B\nG = [x = 1]\n" + b'H = "\xff"\nI = I + 1'
    )
    assert [ad.value(name) for name in "BCFh"] == [2, 3, 2, "\N{REPLACEMENT CHARACTER}"]
    assert ad.value("A") is ERROR and ad.value("I") in (ERROR, None)
    assert ad.value("G") == {"x": 1}


@pytest.mark.parametrize("word", ["end", "function", "nil", "and", "eval", "__index", "goto"])
def test_an_attribute_may_be_called_like_a_word_of_lua(word: str) -> None:
    ad = f"{word} = 3\nSum = {word} + 1\n".encode()
    assert JobAd(ad).value(word) == 3
    assert matches(f'{{ ["job.{word}"] = 3, Sum = 4 }}' if word != "eval" else '"Sum == 4"', ad)


@pytest.mark.parametrize("written", [r'"C:\io"', r'"say \"io\" and \\ too"', r'strcat("a\b","c")'])
def test_a_request_is_repeated_as_the_job_wrote_it(written: str) -> None:
    assert JobAd(f"JobLensLevel = {written}\n".encode()).request().written.partition(" (=")[0] == written


def test_attributes_that_refer_to_each_other_in_a_circle_are_no_answer() -> None:
    ad = JobAd(b"A = B\nB = C\nC = A\nL = {A, L}\nN = [x = y; y = x]\nGood = 1\n")
    assert all(ad.value(name) in (None, ERROR) for name in "ABC")
    assert ad.value("Good") == 1
    for name in "LN":
        ad.value(name)


def test_ten_thousand_attributes_are_read_as_fast_as_ten() -> None:
    ad = b"\n".join(b"A%d = A%d" % (n, n + 1) for n in range(300)) + b"\nA300 = 7\n"
    ad += b"\n".join(b"B%d = %d" % (n, n) for n in range(10_000))
    assert JobAd(ad).value("B9999") == 9999
    assert JobAd(ad).value("A250") == 7


# Helpers that others lean on.


@given(st.text("ab*?.", max_size=10) | st.text("ab*", max_size=10), st.text("ab.c", max_size=12) | st.text("ab"))
@example("*" * 300 + "a", "ba")  # a long one is compared in another way
@example("a*a", "a")
@settings(max_examples=examples(400))
def test_glob_is_fnmatch(pattern: str, text: str) -> None:
    assert lua_call("glob", text, pattern) is fnmatch.fnmatchcase(text, pattern)


SIMPLE = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "^", "$", "[a-c]", "\\W"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "{0,}"])).map(lambda t: f"(?:{t[0]}){t[1]}")
        | st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda t: f"({t[0]}|{t[1]})")
    ),
    max_leaves=6,
)


@given(SIMPLE, st.text("abc1 ", max_size=8), st.booleans())
@settings(max_examples=examples(400))
def test_regular_expressions_are_those_of_python(pattern: str, text: str, caseless: bool) -> None:
    pattern = ("(?i)" if caseless else "") + pattern
    python = pattern.replace("$", r"\Z")
    expected = re.search(python, text.upper() if caseless else text, re.ASCII) is not None
    assert lua_call("matches", text.upper() if caseless else text, pattern) is expected


@pytest.mark.parametrize(
    "pattern", ["(a", "a)", "[a", "*", "a{", "a{2", "a{9,1}", "a{999}", "\\", "\\q", "(" * 60, "a" * 201]
)
def test_a_wrong_regular_expression_is_told(pattern: str) -> None:
    with pytest.raises(PolicyError, match="regular expression"):
        lua_call("matches", "aaa", pattern)


def test_a_regular_expression_that_ruins_others_is_linear_here() -> None:
    assert lua_call("matches", "a" * 200, "^(a|a)*(a|a)*(a|a)*b$") is False


_SANDBOX = LuaSandbox()
_SANDBOX.load(
    "call.lua",
    'rule "call" { level = "io", when = function(job) return job.Text[job.Method](job.Text, job.Pattern) end }',
)


def lua_call(method: str, text: str, pattern: str) -> bool | Missing:
    _SANDBOX.begin({"j:text": text, "j:method": method, "j:pattern": pattern}, 0, 0, 0)
    return _SANDBOX.match(_SANDBOX.rules[0])


@given(st.integers(0, 23), st.integers(0, 59), st.integers(0, 6))
def test_hours_and_days_are_those_of_the_clock(hour: int, minute: int, day: int) -> None:
    sandbox = LuaSandbox()
    spans = {
        "22:00-06:00": None,
        "08:30-12:00": None,
        "mon-fri 22:00-06:00": None,
        "sat-sun 00:00-24:00": None,
        "wed 10:00-11:00": None,
    }
    for number, span in enumerate(spans):
        sandbox.load(f"{number}.lua", f'rule "{span}" {{ level = "io", during = "{span}" }}')
    sandbox.begin({}, hour, minute, day)
    now, night_of = hour * 60 + minute, day if hour >= 22 else (day - 1) % 7
    night = hour >= 22 or hour < 6
    expected = {
        "22:00-06:00": night,
        "08:30-12:00": 510 <= now < 720,
        "mon-fri 22:00-06:00": night and night_of in range(1, 6),
        "sat-sun 00:00-24:00": day in (6, 0),
        "wed 10:00-11:00": day == 3 and hour == 10,
    }
    assert {rule.name: sandbox.match(rule) for rule in sandbox.rules} == expected


def test_a_sample_is_stable_of_its_size_and_another_for_another_rule() -> None:
    def chosen(name: str) -> list[int]:
        text = f'rule "{name}" {{ level = "io", sample = 0.2 }}'
        engine = Engine()
        engine.load([("x.lua", text)], lambda doing: None)
        jobs = [job_of(JobAd(b'GlobalJobId = "ap#%d.0#1700000000"' % n), ASKED, NOON) for n in range(2000)]
        return [n for n, job in enumerate(jobs) if engine.decide(job, NOON, None)["level"] == "io"]

    first = chosen("one")
    assert first == chosen("one")
    assert 320 < len(first) < 480
    assert 40 < len(set(first) & set(chosen("two"))) < 130
