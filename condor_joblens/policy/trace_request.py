"""What a job asks to be traced of it from its start with `+JobLensTrace`: SPECs, separated by semicolons.

`python:raises` is an exception that ends a Python of the job. `python:calls` are calls of Python, `python:FILES` those
of functions in such files. `python:returns` are calls with what they returned, `python:exceptions` those with each
exception that was raised. They are about such files, or about all if no files are named.
`python:FUNCTION(ARGUMENT, ARGUMENT)` are calls of functions of that name in any file, with the values of one or two
arguments. Each means `python:raises` as well.

A SPEC of Python can end with `+locals`: with an exception that ends a Python come the local variables of its frames.
And with `+limited`: of each function the first calls are recorded, so that one which is called often costs little.

`bash` are the commands of bash scripts, `throws` what C++ programs throw. `FILE:FUNCTION` are functions of programs
(model/trace_spec.py). What is not understood is told with what would be right, and the job runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from condor_joblens.common.errors import printable
from condor_joblens.model.trace_spec import SHELL, THROWS, SpecError, parse
from condor_joblens.policy import ad_literal

ATTRIBUTE = "JobLensTrace"
RAISES = "python:raises"
CALLS = "python:calls"
RETURNS = "python:returns"
EXCEPTIONS = "python:exceptions"
LOCALS, LIMITED = "+locals", "+limited"
ALL_FILES = "*"
MOST_PATTERN = 50
"""Bytes of a pattern of files: all of them go into one small packet (commands/python.py)."""

MOST_SPECS = 8
SHOWN = 60  # characters of a SPEC that an ad repeats

MOST_ARGUMENTS = 2

_ASKED = re.compile(r"([^()]*)\(([^()]*)\)")
_FILES = re.compile(r"[^\0-\x1f\x7f;]*(/[^\0-\x1f\x7f;]*|\.py)")
_WORDS = RAISES, CALLS, RETURNS, EXCEPTIONS


@dataclass(frozen=True)
class TraceRequest:
    """What a job asks for with `+JobLensTrace`."""

    python_raises: bool = False
    functions: tuple[str, ...] = ()  # SPECs, each of which can be parsed
    refused: str = ""  # what is not understood, the first and how many more, fit to print; empty: all is
    python_files: tuple[str, ...] = ()  # patterns of files whose functions' calls are recorded; ALL_FILES: all
    python_returns: bool = False  # also what they returned
    python_exceptions: bool = False  # also those that are handled
    shell: bool = False  # commands of bash scripts
    throws: bool = False  # what C++ programs throw
    python_arguments: tuple[str, ...] = ()  # FUNCTION,ARGUMENT or FUNCTION,ARGUMENT,ARGUMENT
    python_locals: bool = False  # also local variables of the frames of an exception that ends a Python
    python_limited: bool = False  # of each function the first calls alone

    @property
    def has_python_calls(self) -> bool:
        """Whether calls of Python are to be recorded."""
        return bool(self.python_files or self.python_arguments)

    def note(self) -> str:
        """One line for the job's ad if not all that was asked for is understood."""
        return f"{ATTRIBUTE}: {self.refused}" if self.refused else ""


def understand(ad: bytes) -> TraceRequest:
    """The request of a job with this ad (old ClassAd format).

    Nothing is evaluated: it must be a text without escapes. Linear in the ad's length.
    """
    found = ad_literal.written(ad, ATTRIBUTE)
    if found is None:
        return TraceRequest(refused="an expression is not traced: write a text of at most 1000 characters")
    return of_text(found)


def of_text(text: str) -> TraceRequest:
    """What these SPECs, separated by semicolons, ask for."""
    specs = list(dict.fromkeys(filter(None, map(str.strip, text.split(";")))))
    refused = f"only the first {MOST_SPECS} SPECs are traced" if len(specs) > MOST_SPECS else ""
    reasons = {spec: why_not(spec) for spec in specs[:MOST_SPECS]}
    understood, wrong = ([spec for spec in reasons if bool(reasons[spec]) == is_wrong] for is_wrong in (False, True))
    if wrong:
        refused = f"{printable(wrong[0], SHOWN)} is not traced: {reasons[wrong[0]]}"
        refused += f" (nor are {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    asked = [spec for spec in understood if _is_of_python(spec)]
    of_python = [_plain(spec)[0] for spec in asked]
    returns, exceptions = RETURNS in of_python, EXCEPTIONS in of_python
    arguments = tuple(map(_joined, filter(_is_of_arguments, of_python)))
    files = tuple(spec.partition(":")[2] for spec in of_python if spec not in _WORDS and not _is_of_arguments(spec))
    if CALLS in of_python or ((returns or exceptions) and not files and not arguments):
        files = (ALL_FILES,)
    functions = tuple(spec for spec in understood if not _is_of_python(spec) and spec not in (SHELL, THROWS))
    options = {option for spec in asked for option in _plain(spec)[1]}
    return TraceRequest(
        python_raises=bool(of_python),
        functions=functions,
        refused=refused,
        python_files=files,
        python_returns=returns,
        python_exceptions=exceptions,
        shell=SHELL in understood,
        throws=THROWS in understood,
        python_arguments=arguments,
        python_locals=LOCALS in options,
        python_limited=LIMITED in options,
    )


def _plain(spec: str) -> tuple[str, list[str]]:
    """A SPEC of Python without what stands at its end, and that."""
    options = []
    for _ in range(2):
        for option in (LOCALS, LIMITED):
            if spec.endswith(option):
                spec = spec.removesuffix(option)
                options.append(option)
    return spec, options


def _is_of_python(spec: str) -> bool:
    return spec.partition(":")[0] == "python"


def _is_of_arguments(spec: str) -> bool:
    return spec.endswith(")")


def _joined(spec: str) -> str:
    """`fit,run,event` of `python:fit(run, event)`. Raises ValueError with what would be right."""
    found = _ASKED.fullmatch(spec.partition(":")[2])
    function, arguments = (found[1].strip(), found[2].split(",")) if found else ("", [])
    names = [each.strip() for each in arguments]
    if function.endswith(".py") or "/" in function or "*" in function:
        raise ValueError("arguments are of a function, in any file: write its name, as python:fit(run, event)")
    if not all(each.isidentifier() for each in [*function.split("."), *names]):
        raise ValueError("write a function and names of its arguments, as python:fit(run, event)")
    joined = ",".join([function, *names])
    if len(names) > MOST_ARGUMENTS or len(joined.encode()) > MOST_PATTERN:
        raise ValueError(f"write at most {MOST_ARGUMENTS} arguments, and {MOST_PATTERN} bytes with the function's name")
    return joined


def why_not(spec: str) -> str:
    """Why a SPEC of functions can't be traced from a job's start, fit to print; empty: it can."""
    if _is_of_python(spec):
        spec, _ = _plain(spec)
        if _is_of_arguments(spec):
            try:
                _joined(spec)
            except ValueError as error:
                return str(error)
            return ""
        files = spec.partition(":")[2]
        if spec in _WORDS or (_FILES.fullmatch(files) and len(files.encode()) <= MOST_PATTERN):
            return ""
        examples = "python:fit.py, python:fit(run), python:raises+locals"
        return f"write {', '.join(_WORDS)}, or as {examples} in {MOST_PATTERN} bytes"
    try:
        if spec != THROWS and parse(spec).is_of_throws:
            return f"write {THROWS} for what C++ programs throw"
        if spec != SHELL and parse(spec).is_of_shell:
            return f"write {SHELL} for the commands of bash scripts"
    except SpecError as error:
        return printable(str(error), 120)
    return ""
