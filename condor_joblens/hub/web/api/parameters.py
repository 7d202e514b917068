"""What a request may say beside its path: each parameter has a JSON Schema, by which it is read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.errors import JobLensError, printable

SECRETS = ("token", "access_token", "api_key", "apikey", "key")
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?")


class WrongRequest(JobLensError):
    """What is wrong with it, in a sentence."""


@dataclass(frozen=True)
class Parameter:
    """One of them. Its schema has a type, and bounds: a list is written with commas."""

    name: str
    help: str
    schema: Mapping[str, Any]
    is_required: bool = False

    @property
    def default(self) -> Any:
        """None: there is none."""
        found = self.schema.get("default")
        return tuple(found) if isinstance(found, list) else found

    def read(self, text: str) -> Any:
        """Raises WrongRequest."""
        if self.schema["type"] == "array":
            parts = [part for part in text.split(",") if part]
            if not parts or len(parts) > self.schema["maxItems"]:
                raise WrongRequest(f"{self.name} is a list of 1 to {self.schema['maxItems']}, with commas between")
            return tuple(dict.fromkeys(self._one(part, self.schema["items"]) for part in parts))
        return self._one(text, self.schema)

    def _one(self, text: str, schema: Mapping[str, Any]) -> Any:
        if schema["type"] == "string":
            return self._text(text, schema)
        pattern = _INTEGER if schema["type"] == "integer" else _NUMBER
        value = (int if schema["type"] == "integer" else float)(text) if pattern.fullmatch(text) else math.nan
        if not schema["minimum"] <= value <= schema["maximum"]:
            kind = "a whole number" if schema["type"] == "integer" else "a number"
            raise WrongRequest(f"{self.name} is {kind} from {schema['minimum']} to {schema['maximum']}")
        return value

    def _text(self, text: str, schema: Mapping[str, Any]) -> str:
        known = schema.get("enum")
        if known is not None and text not in known:
            hint = ", ".join(known) if len(known) <= 12 else "one of those that /api/v1/schema lists"
            raise WrongRequest(f"{self.name} can't be {printable(text[:60])}: write {hint}")
        if known is None and len(text) > schema["maxLength"]:
            raise WrongRequest(f"{self.name} has at most {schema['maxLength']} characters")
        return text


def read(parameters: Sequence[Parameter], given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Each parameter's value, or its default. given: all values of a name. Raises WrongRequest."""
    known = {parameter.name for parameter in parameters}
    for name in given:
        if name in SECRETS:
            raise WrongRequest("a token goes into the header Authorization, never into an address: end this one")
        if name not in known:
            there = ", ".join(sorted(known)) or "there are none"
            raise WrongRequest(f"there is no parameter {printable(name[:40])} here: {there}")
    found = {}
    for parameter in parameters:
        values = given.get(parameter.name, ())
        if len(values) > 1:
            raise WrongRequest(f"{parameter.name} stands there {len(values)} times: write it once")
        if parameter.is_required and not values:
            raise WrongRequest(f"{parameter.name} is missing: {parameter.help}")
        found[parameter.name] = parameter.read(values[0]) if values else parameter.default
    return found
