"""A job's ad from bytes to plain values. For the policy child alone: classad2 dies of a hostile ad."""

from __future__ import annotations

import datetime
from typing import Union

import classad2

from condor_joblens.levels import ATTRIBUTE, Request, understand

MAX_ATTRIBUTES = 5000
MAX_DEPTH = 8  # of lists and ads within each other
MAX_ITEMS = 1000  # of one list


class ClassAdError:
    """The type of ERROR."""


ERROR = ClassAdError()
"""The value of an attribute that evaluates to ClassAd's `error`, or to what has no plain form."""

Value = Union[None, bool, int, float, str, ClassAdError, list["Value"], dict[str, "Value"]]


def parse(ad: bytes) -> classad2.ClassAd:
    """The ClassAd of `ad`, in the old format (a line an attribute). Raises ValueError, for people to read."""
    text = ad.decode(errors="replace").replace("\0", "").strip()  # HTCondor 23.9 refuses a blank first line
    if not text:
        raise ValueError("is empty")
    try:
        parsed = classad2.parseOne(text, classad2.ParserType.Old)
    except ValueError:
        parsed = {}
    if not len(parsed):  # mostly it is not an error but an empty ad that tells of what can't be parsed
        raise ValueError("can't be parsed")
    if len(parsed) > MAX_ATTRIBUTES:
        raise ValueError(f"has more than {MAX_ATTRIBUTES} attributes")
    return parsed


def evaluate(ad: classad2.ClassAd) -> dict[str, Value]:
    """Every attribute of `ad` by its name, evaluated within it; undefined ones are left out."""
    values = {name: _attribute(ad, name, 0) for name in ad}
    return {name: value for name, value in values.items() if value is not None}


def request(ad: classad2.ClassAd) -> Request:
    """The level that the job asks for."""
    try:
        expression = ad.lookup(ATTRIBUTE)
    except KeyError:
        return Request()
    try:
        evaluated = str(expression.simplify(ad))
    except Exception:  # HTCondor 23.9 on an expression that refers to itself
        evaluated = "error"
    return understand(_attribute(ad, ATTRIBUTE, 0), str(expression), evaluated)


def _attribute(ad: classad2.ClassAd, name: str, depth: int) -> Value:
    try:
        return _plain(ad.eval(name), ad, depth)
    except Exception:  # a string that is not UTF-8, a value out of range: classad2 raises of many kinds
        return ERROR


def _plain(value: object, ad: classad2.ClassAd, depth: int) -> Value:
    if isinstance(value, classad2.Value):  # before int: it is an enumeration of integers
        return None if value == classad2.Value.Undefined else ERROR
    if isinstance(value, (bool, int, float, str)):
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
