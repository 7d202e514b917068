"""Alarms that programs outside of the hub post, with their evidence: checked, bounded, and kept for the next look."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.rules.alarms import Alarm
from condor_joblens.hub.rules.kept import KEPT_SECONDS, Kept
from condor_joblens.hub.rules.settings import OUTSIDE
from condor_joblens.hub.strict_json import DECODER

MOST_BYTES = 16 << 10
"""Of a post."""

MOST_AN_HOUR = 60
"""Posts of a person."""

MOST_KEPT = 1000
"""Alarms of a person; of more, those go that were posted longest ago."""

LASTS_SECONDS = 3600.0
"""For which an alarm goes on after it was posted."""

MOST_EVIDENCE = 8 << 10

BODY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "minLength": 1, "maxLength": 100, "description": "the same for the same alarm"},
        "title": {"type": "string", "minLength": 1, "maxLength": 100, "description": "for all who see others' jobs"},
        "text": {"type": "string", "maxLength": 1000, "default": "", "description": "for administrators"},
        "count": {"type": "integer", "minimum": 1, "maximum": 1_000_000_000, "default": 1},
        "evidence": {
            "type": "object", "default": {},
            "description": f"for administrators; {MOST_EVIDENCE >> 10} KiB as JSON, at most",
        },
    },
    "required": ["key", "title"],
    "additionalProperties": False,
}  # fmt: skip
"""The JSON Schema of what is posted."""

_KINDS = {"string": str, "integer": int, "object": dict}


class WrongPost(JobLensError):
    """What is wrong with it, in a sentence."""


class TooOften(JobLensError):
    """This person has posted enough for now."""


def read(body: bytes) -> dict[str, Any]:
    """What a post says, with defaults. Raises WrongPost."""
    if len(body) > MOST_BYTES:
        raise WrongPost(f"an alarm has {MOST_BYTES >> 10} KiB at most")
    try:
        found: Any = DECODER.decode(body.decode("utf-8"))
        json.dumps(found, ensure_ascii=False).encode("utf-8")  # half a character would be kept, and never shown
    except (ValueError, RecursionError) as error:
        raise WrongPost(f"an alarm is a JSON object: {printable(str(error), 100)}") from None
    if not isinstance(found, dict):
        raise WrongPost("an alarm is a JSON object")
    properties: Mapping[str, Any] = BODY["properties"]
    strange = sorted(set(found) - set(properties))
    if strange:
        raise WrongPost(f"there is no {printable(strange[0])}: write some of {', '.join(properties)}")
    read = {name: _value(name, schema, found) for name, schema in properties.items()}
    if len(json.dumps(read["evidence"])) > MOST_EVIDENCE:
        raise WrongPost(f"evidence has {MOST_EVIDENCE >> 10} KiB at most")
    return read


def _value(name: str, schema: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Raises WrongPost."""
    if name not in given and "default" not in schema:
        raise WrongPost(f"{name} is missing")
    value = given.get(name, schema.get("default"))
    if schema["type"] == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON Schema calls 2.0 an integer, and some programs write it so
    if not isinstance(value, _KINDS[schema["type"]]) or isinstance(value, bool):
        raise WrongPost(f"{name} is of the type {schema['type']}")
    if isinstance(value, str) and not schema.get("minLength", 0) <= len(value) <= schema["maxLength"]:
        raise WrongPost(f"{name} has {schema.get('minLength', 0)} to {schema['maxLength']} characters")
    if isinstance(value, int) and not schema["minimum"] <= value <= schema["maximum"]:
        raise WrongPost(f"{name} is {schema['minimum']} to {schema['maximum']}")
    return value


class Posted(Kept):
    """Those of all programs. The same key of the same person is the same alarm, of which the newest counts."""

    def post(self, who: str, alarm: Mapping[str, Any], now: float) -> None:
        """who: the person whose token was shown; alarm: as `read` gave it. Raises TooOften."""
        with self._connection() as connection:
            connection.execute("DELETE FROM posts WHERE time < ?", (now - 3600,))
            (posts,) = connection.execute("SELECT count(*) FROM posts WHERE who = ?", (who,)).fetchone()
            if posts >= MOST_AN_HOUR:
                raise TooOften(f"{MOST_AN_HOUR} alarms an hour are enough: post the same alarm once in half an hour")
            connection.execute("INSERT INTO posts VALUES (?, ?)", (who, now))
            values = (who, alarm["key"], alarm["title"], alarm["text"], alarm["count"])
            connection.execute(
                "INSERT OR REPLACE INTO posted VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*values, json.dumps(alarm["evidence"]), now),
            )
            connection.execute(
                "DELETE FROM posted WHERE who = ? AND cause NOT IN "
                "(SELECT cause FROM posted WHERE who = ? ORDER BY time DESC LIMIT ?)",
                (who, who, MOST_KEPT),
            )
            connection.execute("DELETE FROM posted WHERE time < ?", (now - KEPT_SECONDS,))

    def alarms(self, since: float) -> list[Alarm]:
        """Those that were posted then or later."""
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT who, cause, title, sentence, count, evidence FROM posted WHERE time >= ? ORDER BY who, cause",
                (since,),
            ).fetchall()
        return [
            Alarm(
                OUTSIDE,
                f"{who}/{cause}",
                count,
                f"{who}: {title}",
                f"{who}: {title}. {text}".rstrip(". ") + ".",
                source=who,
                evidence=json.loads(evidence),
            )
            for who, cause, title, text, count, evidence in rows
        ]
