"""The page of rules: what they are about, and each firing with its evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.rules.firings import LASTS_SECONDS
from condor_joblens.hub.rules.settings import NODE, SILENT, TRIGGER, WAVE, WHENS, Rule, host_of, read_file
from condor_joblens.hub.web.addresses import job_url, jobs_url, node_url
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.firing_reads import firings_of, reads_words
from condor_joblens.hub.web.health import duration, moment
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.views import View

DAYS = 30
SHOWN = 100
MOST_TEXT = 2000
"""Characters of a value on the page; its JSON has all."""


def _find(reader: Reader) -> dict[str, Any]:
    """Rules are shown to who sees others' jobs, and what went wrong to who reads all. Raises JobLensError."""
    rules, wrong = _rules() if reader.sees_others else (None, "")
    firings = desk().firings
    looked, trouble = firings.last_look() if firings is not None else (0.0, [])
    return {
        "rules": rules,
        "wrong": wrong if reads_words(reader) else "it can't be read" if wrong else "",
        "looked": looked or None,
        "trouble": trouble if reads_words(reader) else [],
        "sees_others": reader.sees_others,
        "firings": firings_of(reader, reader.now - 86400 * DAYS),
        "time": reader.now,
    }


def _rules() -> tuple[list[dict[str, Any]] | None, str]:
    """As the file has them now; None: there is no file. And what is wrong with it."""
    if not desk().rules_file:
        return None, ""
    try:
        return [_told(rule) for rule in read_file(Path(desk().rules_file)).rules], ""
    except (JobLensError, OSError) as error:
        return [], str(error)


def _told(rule: Rule) -> dict[str, Any]:
    """Of a webhook the host alone: an address may have a secret in it."""
    found = {name: getattr(rule, name) for name in ("name", "when", "verdict", "source", "least", "red")}
    return {
        **found,
        "mail": list(rule.mail),
        "webhook": host_of(rule.webhook) if rule.webhook else "",
        "entry": _entry(rule),
    }


def _entry(rule: Rule) -> str:
    """What it makes, in words."""
    entry = rule.entry
    if entry is None:
        return ""
    levels = [f"at {word} {level}" for word, level in (("least", entry.least), ("most", entry.most)) if level]
    return f"an entry of {entry.by}, {', '.join(levels)} for {entry.hours:g} h, {entry.an_hour} an hour"


def _dress(asked: Any, found: dict[str, Any]) -> dict[str, Any]:
    rules = [
        {
            **rule,
            "about": WHENS[rule["when"]]
            + (f", verdict {rule['verdict']}" if rule["verdict"] else "")
            + (f", of {rule['source']}" if rule["source"] else ""),
            "tells": ", ".join(
                [
                    *rule["mail"],
                    *([f"a post to {rule['webhook']}"] if rule["webhook"] else []),
                    *([rule["entry"]] if rule["entry"] else []),
                ]
            ),
        }
        for rule in found["rules"] or ()
    ]
    return {
        "rules": rules,
        "has_file": found["rules"] is not None,
        "sees_others": found["sees_others"],
        "wrong": found["wrong"],
        "trouble": found["trouble"],
        "is_blind": found["rules"] is not None and found["time"] - (found["looked"] or 0) > LASTS_SECONDS,
        "looked": moment(found["looked"]) if found["looked"] else "",
        "firings": [_dressed(one, found["time"]) for one in found["firings"][:SHOWN]],
        "count": len(found["firings"]),
        "days": DAYS,
    }


def _dressed(one: dict[str, Any], now: float) -> dict[str, Any]:
    evidence = one["evidence"]
    url, jobs = "", []
    if one["kind"] == TRIGGER:
        jobs = [(each["job"], job_url(each["run"])) for each in evidence.get("jobs", ())]
    elif one["kind"] == WAVE and evidence.get("cause"):
        url = jobs_url("failed", cause=evidence["cause"], since=evidence["since"])
    elif one["kind"] in (NODE, SILENT):
        url = node_url(evidence["node"])
    told = ", ".join(f"{way} to {count}" for way, count in sorted(one["told"].items()))
    lasted = "goes on" if one["lasts"] else duration(max(0.0, one["seen"] - one["begun"]))
    lines = [(name, _text(value)) for name, value in evidence.items() if name not in _ELSEWHERE]
    return {
        **one,
        "jobs": jobs,
        "lines": [(name.replace("_", " "), text) for name, text in lines if text],
        "begun_text": moment(one["begun"]),
        "lasted": lasted,
        "url": url,
        "told_text": told or "nobody",
    }


_ELSEWHERE = ("jobs", "since", "cause", "message")
"""Of the evidence, what a row says elsewhere."""


def _text(value: Any) -> str:
    """Of an evidence: a number or a text as it is, all else as JSON."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value if isinstance(value, (str, int)) else json.dumps(value, ensure_ascii=False) if value else "")[
        :MOST_TEXT
    ]


RULES = View("rules", lambda asked: None, lambda reader, asked: _find(reader), _dress)
