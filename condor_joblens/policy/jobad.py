"""A job's ad from bytes to plain values. For the policy child alone: classad2 dies of a hostile ad.

Parsing 250 attributes takes classad2 0.4 ms, and policies read ten. So an ad is a table of lines here. A plain literal
is read as it stands; classad2 evaluates an expression in an ad of it and of what it refers to. What can't be told by
its text alone (`eval`, `MY.x`, a nested ad) is evaluated in the whole ad.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Union

import classad2

from condor_joblens.policy.level_request import ATTRIBUTE, LevelRequest, understand

MAX_ATTRIBUTES = 20_000
MAX_DEPTH = 8  # of lists and ads within each other
MAX_ITEMS = 1000  # of one list
MAX_STRING = 64 << 10  # characters; a longer one has no plain form
MAX_EXPRESSION = 4096  # characters of one that a policy brings along


class ClassAdError:
    """The type of ERROR."""


ERROR = ClassAdError()
"""The value of an attribute that evaluates to ClassAd's `error`, or to what has no plain form."""

Value = Union[None, bool, int, float, str, ClassAdError, list["Value"], dict[str, "Value"]]

_LINE = re.compile(r"^[ \t]*([^\s=]+)[ \t]*=[ \t]*(.*)$", re.MULTILINE | re.ASCII)
_EQUALS = " = "  # as HTCondor writes it
_NEVER_IN_NAMES = re.compile(r"[\s=]", re.ASCII)
_LITERAL = re.compile(
    r'"([^"\\]*)"|(-?[0-9]{1,18})|(-?[0-9]{1,15}\.[0-9]{1,15})|(true)|(false)|(undefined)', re.IGNORECASE | re.ASCII
)
_LONE_BACKSLASH = re.compile(r'\\(?!"(?!$))')  # in the old format it escapes a quote, unless the string ends with it
_NAME = re.compile(r"[a-z_][a-z0-9_.]*")
_NEEDS_WHOLE_AD = re.compile(r"eval|\bmy\b|\btarget\b|\bparent\b|\btoplevel\b|[\[']", re.ASCII)


class JobAd:
    """The old format (a line an attribute), evaluated where it is asked.

    Raises ValueError, for people to read, where it is no ad.
    """

    def __init__(self, ad: bytes) -> None:
        text = ad.replace(b"\0", b"").decode(errors="replace")
        self._lines = _lines(text)
        self._whole: classad2.ClassAd | None = None
        if not self._lines:
            raise ValueError("can't be parsed" if text.strip() else "is empty")
        if len(self._lines) > MAX_ATTRIBUTES:
            raise ValueError(f"has more than {MAX_ATTRIBUTES} attributes")

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def value(self, name: str) -> Value:
        """An attribute, in any case; None where it is undefined or not there."""
        expression = self._expression(name)
        if not expression:
            return None
        literal = _LITERAL.fullmatch(expression)
        return self._evaluated(expression, name) if literal is None else _plain_literal(literal)

    def eval(self, expression: str) -> Value:
        """The value of a ClassAd expression in this ad."""
        if len(expression) > MAX_EXPRESSION:
            return ERROR
        try:
            tree = classad2.ExprTree(expression)
            scope = self._scope(expression)
            return _plain(tree.eval(scope), scope, 0)
        except Exception:  # classad2 raises of many kinds
            return ERROR

    def request(self) -> LevelRequest:
        """The level that the job asks for."""
        written = self._expression(ATTRIBUTE)
        if not written:
            return LevelRequest()
        try:
            scope = self._scope(written, ATTRIBUTE)
            expression = scope.lookup(ATTRIBUTE)
        except Exception:  # a line that is no expression
            return understand(ERROR, written, "error")
        try:
            evaluated = str(expression.simplify(scope))
        except Exception:  # HTCondor 23.9 on an expression that refers to itself
            evaluated = "error"
        return understand(self.value(ATTRIBUTE), _in_old_format(str(expression)), _in_old_format(evaluated))

    def _expression(self, name: str) -> str:
        """What is written of an attribute; empty where it is not there."""
        return self._lines.get(name.lower(), "")[len(name) + len(_EQUALS) :].strip()

    def _evaluated(self, expression: str, name: str) -> Value:
        try:
            scope = self._scope(expression, name)
            return _plain(scope.eval(name), scope, 0)
        except Exception:  # a string that is not UTF-8, a value out of range
            return ERROR

    def _scope(self, expression: str, name: str = "") -> classad2.ClassAd:
        """The ad of `name`, of what `expression` refers to, and of what that refers to."""
        needed = {name.lower(): self._lines[name.lower()]} if name else {}
        unseen = [expression]
        while unseen:
            text = unseen.pop().lower()
            if _NEEDS_WHOLE_AD.search(text):
                return self._all()
            for reference in _NAME.findall(text):
                first = reference.partition(".")[0]
                for known in (reference, first):
                    if known not in needed and known in self._lines:
                        needed[known] = self._lines[known]
                        unseen.append(self._lines[known])
        return _parse(needed)

    def _all(self) -> classad2.ClassAd:
        if self._whole is None:
            self._whole = _parse(self._lines)
        return self._whole


def is_expression(text: str) -> bool:
    """Whether this is a ClassAd expression, for a policy."""
    return len(text) <= MAX_EXPRESSION and _can_be_parsed(text)


def is_value(written: str) -> bool:
    """Whether this may stand behind a name in an ad. The ad's own parser takes the beginning of what is none."""
    return _can_be_parsed(_LONE_BACKSLASH.sub(r"\\\\", written))


def _can_be_parsed(expression: str) -> bool:
    try:
        classad2.ExprTree(expression)
    except Exception:  # classad2 raises of many kinds
        return False
    return True


def _lines(text: str) -> dict[str, str]:
    """Name in lower case -> its line, Name = expression; of two lines the later one.

    This is half of what reading an ad takes, so the layout that HTCondor writes goes without a regular expression.
    """
    names = [line.partition(_EQUALS)[0] for line in text.lower().split("\n")]
    if "=" not in text or _NEVER_IN_NAMES.search("".join(names)):
        return {name.lower(): name + _EQUALS + expression for name, expression in _LINE.findall(text)}
    lines = dict(zip(names, text.split("\n")))
    lines.pop("", None)
    return lines


def _parse(lines: dict[str, str]) -> classad2.ClassAd:
    text = "\n".join(lines.values())
    ad = classad2.parseOne(text, classad2.ParserType.Old) if text else classad2.ClassAd()
    if len(ad) < len(lines):  # it ends at the first line that is no expression: each for itself, then
        ad = classad2.ClassAd()
        for line in lines.values():
            ad.update(classad2.parseOne(line, classad2.ParserType.Old))
    return ad


def _in_old_format(expression: str) -> str:
    """As the job's ad has it: in its strings a backslash stands for itself."""
    return expression.replace("\\\\", "\\")


def _plain_literal(literal: re.Match[str]) -> Value:
    kind, text = literal.lastindex, literal.group(literal.lastindex or 0)
    if kind == 1:
        return text if len(text) <= MAX_STRING else ERROR
    if kind in (2, 3):
        return int(text) if kind == 2 else float(text)
    return None if kind == 6 else kind == 4


def _attribute(ad: classad2.ClassAd, name: str, depth: int) -> Value:
    try:
        return _plain(ad.eval(name), ad, depth)
    except Exception:  # classad2 raises of many kinds
        return ERROR


def _plain(value: object, ad: classad2.ClassAd, depth: int) -> Value:
    if isinstance(value, classad2.Value):  # before int: it is an enumeration of integers
        return None if value == classad2.Value.Undefined else ERROR
    if isinstance(value, str):
        return value if len(value) <= MAX_STRING else ERROR
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, datetime.datetime):
        return int(value.timestamp())
    if depth >= MAX_DEPTH:
        return ERROR
    if isinstance(value, classad2.ExprTree):
        return _plain(value.eval(ad), ad, depth + 1)
    if isinstance(value, list) and len(value) <= MAX_ITEMS:
        return [_plain(item, ad, depth + 1) for item in value]
    if isinstance(value, classad2.ClassAd):
        return {name: _attribute(value, name, depth + 1) for name in value}
    return ERROR
