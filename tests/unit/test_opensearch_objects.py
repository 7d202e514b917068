"""What a site imports for the indices of OpenSearch: the files are those of their script, and whole in themselves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.opensearch_mapping import mapping

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "opensearch"
FILES = ("joblens.ndjson", "retention-details.json", "retention-jobs.json")

_STATE: dict[str, Any] = {
    "type": "object",
    "required": ["name", "actions", "transitions"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "actions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["delete"],
                "additionalProperties": False,
                "properties": {
                    "delete": {"type": "object", "maxProperties": 0},
                    "retry": {
                        "type": "object",
                        "required": ["count"],
                        "additionalProperties": False,
                        "properties": {
                            "count": {"type": "integer", "minimum": 0},
                            "backoff": {"enum": ["exponential", "constant", "linear"]},
                            "delay": {"type": "string", "pattern": "^[0-9]+[smhd]$"},
                        },
                    },
                },
            },
        },
        "transitions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["state_name", "conditions"],
                "additionalProperties": False,
                "properties": {
                    "state_name": {"type": "string"},
                    "conditions": {
                        "type": "object",
                        "minProperties": 1,
                        "maxProperties": 1,
                        "additionalProperties": False,
                        "properties": {"min_index_age": {"type": "string", "pattern": "^[0-9]+d$"}},
                    },
                },
            },
        },
    },
}

POLICY: dict[str, Any] = {
    "type": "object",
    "required": ["description", "default_state", "states", "ism_template"],
    "additionalProperties": False,
    "properties": {
        "description": {"type": "string"},
        "default_state": {"type": "string"},
        "states": {"type": "array", "minItems": 1, "items": _STATE},
        "ism_template": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["index_patterns"],
                "additionalProperties": False,
                "properties": {
                    "index_patterns": {"type": "array", "minItems": 1, "items": {"type": "string"}},
                    "priority": {"type": "integer", "minimum": 0},
                },
            },
        },
    },
}
"""Of what the plug-in's reader of policies takes, the part that deletes by age; it refuses a field that it does not
know."""


def objects(path: Path = FOLDER / "joblens.ndjson") -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def policies() -> dict[str, dict[str, Any]]:
    """Name of the file -> the policy in it."""
    return {path.name: json.loads(path.read_text())["policy"] for path in FOLDER.glob("retention-*.json")}


def write(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, FOLDER / "make_saved_objects", *arguments, folder], check=True, timeout=60)


def test_the_files_are_those_that_the_script_writes(tmp_path: Path) -> None:
    write(tmp_path)
    for name in FILES:
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text(), f"run {FOLDER}/make_saved_objects"


def test_a_site_can_have_them_for_another_prefix(tmp_path: Path) -> None:
    write(tmp_path, "--index", "site_jobs")
    assert all(one["id"].startswith("site_jobs-") for one in objects(tmp_path / "joblens.ndjson"))
    for name in FILES:
        assert not re.search(r"joblens-(samples|events|jobs|health|profiles)", (tmp_path / name).read_text())


def test_each_object_has_an_id_of_its_own_and_refers_to_those_before_it() -> None:
    seen: set[tuple[str, str]] = set()
    for one in objects():
        assert {(to["type"], to["id"]) for to in one["references"]} <= seen
        assert (one["type"], one["id"]) not in seen
        seen.add((one["type"], one["id"]))


def test_each_panel_of_the_dashboard_is_there_and_none_lies_over_another() -> None:
    (dashboard,) = (one for one in objects() if one["type"] == "dashboard")
    panels = json.loads(dashboard["attributes"]["panelsJSON"])
    assert [panel["panelRefName"] for panel in panels] == [to["name"] for to in dashboard["references"]]
    assert {to["id"] for to in dashboard["references"]} == {
        one["id"] for one in objects() if one["type"] == "visualization"
    }
    cells = [
        (x, y)
        for place in (panel["gridData"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 48


def test_the_columns_of_each_search_are_fields_of_its_records() -> None:
    for one in objects():
        if one["type"] == "search":
            kind = RecordKind(one["references"][0]["id"].rpartition("-")[2].rstrip("s"))
            assert set(one["attributes"]["columns"]) <= set(mapping(kind)["properties"])


def test_each_policy_is_one_that_deletes_by_age(policies: dict[str, dict[str, Any]]) -> None:
    assert set(policies) == set(FILES[1:])
    for policy in policies.values():
        jsonschema.Draft202012Validator(POLICY).validate(policy)
        keep, delete = policy["states"]
        assert policy["default_state"] == keep["name"] and not keep["actions"] and not delete["transitions"]
        assert [to["state_name"] for to in keep["transitions"]] == [delete["name"]]


def test_each_kind_of_index_has_one_policy(policies: dict[str, dict[str, Any]]) -> None:
    patterns = [name for policy in policies.values() for to in policy["ism_template"] for name in to["index_patterns"]]
    assert sorted(patterns) == [f"joblens-{kind}-*" for kind in ("events", "health", "jobs", "profiles", "samples")]
