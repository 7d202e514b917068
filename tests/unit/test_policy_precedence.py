"""Which rule counts: the one function that says it, against the table in words, for every combination."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.model.levels import Level
from condor_joblens.policy.lua_sandbox import Rule
from condor_joblens.policy.precedence import verdict

LEVELS = st.sampled_from(Level)
WORDS = st.none() | st.sampled_from([level.word for level in Level])


@st.composite
def rules(draw: st.DrawFn) -> list[Rule]:
    """Matching rules, in order."""
    made = []
    for index in range(draw(st.integers(0, 5))):
        level = draw(WORDS | st.just("requested"))
        numbers = draw(st.none() | st.integers(1, 9).map(float)), draw(st.none() | st.integers(-3, 3).map(float))
        sinks = draw(st.none() | st.just(("kafka",)) | st.just(()))
        report, trace = draw(st.none() | st.booleans()), draw(st.sampled_from([None, "", "reco:fit"]))
        quota = draw(st.none() | st.integers(0, 9).map(float)), draw(st.none() | st.just(0.1))
        made.append(
            Rule(
                index=index, file=f"{index}.lua", line=1, name=f"rule {index}", level=level, cap=draw(WORDS),
                period=numbers[0], for_seconds=None, sinks=sinks, priority=numbers[1], max_jobs=quota[0],
                max_share=quota[1], per=None, reason=f"reason {index}",
                conditional=True, expression=None, paths=(), runs_code=False,
                report=report, trace=trace,
            )
        )  # fmt: skip
    return made


@settings(max_examples=examples(300))
@given(rules(), st.none() | LEVELS, LEVELS, LEVELS)
def test_the_verdict_is_the_first_of_the_list_that_speaks(
    matching: list[Rule], requested: Level | None, default: Level, maximum: Level
) -> None:
    caps = [Level[rule.cap.upper()] for rule in matching if rule.cap]
    raises = [Level[rule.level.upper()] for rule in matching if rule.level and rule.level != "requested"]
    granted = requested if any(rule.level == "requested" for rule in matching) else None
    if raises and granted is not None:
        wanted = max(raises[-1], granted)  # a raise is "at least", so a request for more goes on
    elif raises:
        wanted = raises[-1]
    else:
        wanted = default if granted is None else granted
    found = verdict(matching, requested, default, maximum)
    assert found.cap == min([maximum, *caps[-1:]])
    assert found.level == min(wanted, found.cap)


@settings(max_examples=examples(200))
@given(rules(), st.none() | LEVELS, LEVELS, LEVELS)
def test_the_rule_that_is_named_is_one_that_matters(
    matching: list[Rule], requested: Level | None, default: Level, maximum: Level
) -> None:
    found = verdict(matching, requested, default, maximum)
    if not found.rule:
        assert not any(rule.level or rule.cap for rule in matching) or found.level in (default, maximum, found.cap)
        return
    (named,) = [rule for rule in matching if rule.name == found.rule]
    assert named.level or named.cap
    granted = named.level == "requested" and found.level == min(default if requested is None else requested, found.cap)
    said = [Level[word.upper()] for word in (named.level, named.cap) if word and word != "requested"]
    assert granted or found.level in said or found.level == found.cap


@given(rules())
def test_period_priority_and_sinks_are_those_of_the_last_rule_that_says_them(matching: list[Rule]) -> None:
    found = verdict(matching, None, Level.BASIC, Level.TRACE)
    for name, otherwise in (("period", None), ("priority", 0.0), ("sinks", None), ("report", None), ("trace", None)):
        said = [getattr(rule, name) for rule in matching if getattr(rule, name) is not None]
        assert getattr(found, name) == (said[-1] if said else otherwise)
    quotas = [rule for rule in matching if rule.max_jobs is not None or rule.max_share is not None]
    assert found.quota is (quotas[-1] if quotas else None)


@given(rules(), LEVELS, LEVELS)
def test_nobody_gets_above_the_administrators_cap(matching: list[Rule], requested: Level, maximum: Level) -> None:
    assert verdict(matching, requested, Level.TRACE, maximum).level <= maximum
