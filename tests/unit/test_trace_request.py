"""+JobLensTrace: what a job asks to be traced from its start, and what its note says of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.policy.trace_request import MOST_PATTERN, MOST_SPECS, TraceRequest, of_text, understand, why_not


@pytest.mark.parametrize(
    "ad, wanted, functions, refused",
    [
        (b'JobLensTrace = "python:raises"\n', True, [], ""),
        (b'Owner = "alice"\njoblenstrace="python:raises" \n', True, [], ""),
        (b'JobLensTrace = "python:raises; reco:fit"', True, ["reco:fit"], ""),
        (b'JobLensTrace = " reco:fit(int, char*) -> int ;python:raises;; "', True, ["reco:fit(int, char*) -> int"], ""),
        (b'JobLensTrace = "libXrdCl.so*:*Open*;reco:fit;reco:fit"', False, ["libXrdCl.so*:*Open*", "reco:fit"], ""),
        (b'JobLensTrace = "reco:fit; fit"', False, ["reco:fit"], "fit is not traced: write FILE:FUNCTION"),
        (b'JobLensTrace = "reco:fit(complex)"', False, [], "complex is no type that can be shown"),
        (b'JobLensTrace = "throws; reco:__cxa_throw"', False, [], "reco:__cxa_throw is not traced: write throws"),
        (b'JobLensTrace = "python:raises"\nJobLensTrace = "python"', False, [], "python is not traced: write python:"),
        (b'JobLensTrace = "python:calls"', True, [], ""),
        (b'JobLensTrace = "python:raises+locals"', True, [], ""),
        (b'JobLensTrace = "python:raises+globals"', False, [], "python:raises+globals is not traced: write python:ra"),
        (b'JobLensTrace = "python:returns"', True, [], ""),
        (b'JobLensTrace = "python:return"', False, [], "python:return is not traced: write python:raises, python:cal"),
        (b'JobLensTrace = strcat("python", ":raises")', False, [], "an expression is not traced"),
        (b'JobLensTrace = "\\"python:raises"', False, [], "an expression is not traced"),
        (b"JobLensTrace = undefined", False, [], ""),
        (b'JobLensTrace = ""', False, [], ""),
        (b'MyJobLensTrace = "python:raises"', False, [], ""),
        (b'Note = "JobLensTrace"', False, [], ""),
        (b"", False, [], ""),
    ],
)
def test_what_is_asked_for(ad: bytes, wanted: bool, functions: list[str], refused: str) -> None:
    asked = understand(ad)
    assert (asked.python_raises, list(asked.functions)) == (wanted, functions)
    assert refused in asked.refused and bool(refused) == bool(asked.refused)


@pytest.mark.parametrize(
    "text, files",
    [
        ("python:calls", ("*",)),
        ("python:fit.py; python:calls", ("*",)),
        ("python:cuts/*; reco:fit;python:fit.py", ("cuts/*", "fit.py")),
        ("python:returns", ("*",)),
        ("python:exceptions", ("*",)),
        ("python:exceptions; python:fit.py; python:returns", ("fit.py",)),
        ("python:returns; python:calls; python:fit.py", ("*",)),
        ("python:returns; python:fit.py; python:raises", ("fit.py",)),
        ("python:raises", ()),
        ("python:fit", ()),
        (f"python:{'a' * MOST_PATTERN}.py", ()),
    ],
)
def test_files_of_python_whose_calls_are_recorded(text: str, files: tuple[str, ...]) -> None:
    asked = of_text(text)
    assert (asked.python_files, asked.python_returns) == (files, "returns" in text)
    assert asked.python_exceptions == ("exceptions" in text)


@pytest.mark.parametrize(
    "spec, arguments, why",
    [
        ("python:fit(run, event)", ("fit,run,event",), ""),
        ("python: Fitter.fit( run )", ("Fitter.fit,run",), ""),
        ("python:größe(länge)", ("größe,länge",), ""),
        ("python:x.py(run, event)", (), "arguments are of a function, in any file"),
        ("python:cuts/*(run)", (), "arguments are of a function, in any file"),
        ("python:fit()", (), "names of its arguments"),
        ("python:fit(run=3)", (), "names of its arguments"),
        ("python:fit(run,)", (), "names of its arguments"),
        ("python:(run)", (), "names of its arguments"),
        ("python:fit(f(x))", (), "names of its arguments"),
        ("python:cuts/a)", (), "names of its arguments"),
        ("python:fit(a, b, c)", (), "at most 2 arguments"),
        (f"python:fit({'a' * 47})", (), "50 bytes"),
    ],
)
def test_arguments_of_python_by_their_names(spec: str, arguments: tuple[str, ...], why: str) -> None:
    asked = of_text(spec)
    assert (asked.python_arguments, asked.python_files, asked.python_raises) == (arguments, (), bool(arguments))
    assert why in asked.refused and bool(why) == bool(asked.refused)
    assert of_text(f"{spec};python:returns;python:exceptions").python_files == (() if arguments else ("*",))


@pytest.mark.parametrize("plain", ["python:raises", "python:cuts/*", "python:fit(run, event)", "python:returns"])
def test_local_variables_are_asked_for_with_any_spec_of_python(plain: str) -> None:
    asked, with_locals = of_text(plain), of_text(f"python:exceptions; {plain}+locals")
    assert (asked.python_locals, with_locals.python_locals) == (False, True)
    assert (asked.python_files, asked.python_arguments) == (with_locals.python_files, with_locals.python_arguments) or (
        plain == "python:raises"
    )
    assert not of_text("reco:fit+locals").python_locals


def test_the_note_names_what_is_not_understood() -> None:
    assert understand(b'JobLensTrace = "python:raises"').note() == TraceRequest().note() == ""
    assert understand(b'JobLensTrace = "a\xc3\xa9"').note() == (
        "JobLensTrace: a\\xe9 is not traced: write FILE:FUNCTION, for example myprog:fit or 'libm.so*:pow'"
    )


@given(st.binary(max_size=300))
def test_whatever_the_ad_has_is_bounded_and_fit_to_print(value: bytes) -> None:
    asked = understand(b"JobLensTrace = " + value + b"\n")
    assert len(asked.refused) <= 200 and asked.refused.isascii() and (not asked.refused or asked.refused.isprintable())


@given(st.text(max_size=1000))
def test_what_is_said_to_be_traced_can_be(text: str) -> None:
    asked = of_text(text)
    assert len(asked.functions) <= MOST_SPECS and not any(why_not(spec) for spec in asked.functions)


def test_it_says_of_how_many_it_does_not_tell() -> None:
    asked = of_text("reco:(((; reco:fit; python:(((; bsh")
    assert asked.functions == ("reco:fit",)
    assert asked.refused.startswith("reco:((( is not traced: ") and asked.refused.endswith(" (nor are 2 more)")


def test_so_many_are_looked_at() -> None:
    many = ";".join(f"reco:f{number}" for number in range(MOST_SPECS)) + ";python:raises"
    asked = of_text(many)
    assert (len(asked.functions), asked.python_raises) == (MOST_SPECS, False)
    assert asked.refused == f"only the first {MOST_SPECS} SPECs are traced"
