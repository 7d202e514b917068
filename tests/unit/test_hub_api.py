"""The hub's JSON interface without a store: columns, parameters and conditions."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.hub.store.schema import LATEST
from condor_joblens.hub.web.api.columns import COLUMNS, USUAL
from condor_joblens.hub.web.api.conditions import condition
from condor_joblens.hub.web.api.endpoints import ENDPOINTS, ROOT
from condor_joblens.hub.web.api.openapi import ERRORS, document
from condor_joblens.hub.web.api.parameters import Parameter, WrongRequest, read
from condor_joblens.hub.web.who_sees import OF_GROUP, OTHERS, Seen, seen_of, visible
from condor_joblens.model.metrics import METRICS


def everything(what: Seen) -> str:
    return "1"


def own_words(what: Seen) -> str:
    return "IsMine" if what is Seen.WORDS else "1"


def test_columns_are_those_of_the_store() -> None:
    assert {name.partition(".")[0] for name in COLUMNS} == set(LATEST.columns) - {"Version"}
    assert set(USUAL) <= set(COLUMNS)
    assert all(COLUMNS[metric.path].seen is Seen.NUMBERS for metric in METRICS)


def test_whoever_sees_that_a_run_is_there_sees_its_numbers() -> None:
    """Sums of a summary are made of all runs in a viewer's scope."""
    assert all(Seen.NUMBERS in seen or Seen.EXISTS not in seen for seen in [*OTHERS.values(), OF_GROUP])


def test_a_column_that_nobody_thought_of_is_for_who_sees_all() -> None:
    assert seen_of("New") is Seen.WORDS and seen_of("Execute") is Seen.WORDS
    assert visible({"Mem": 1, "New": 2}, OF_GROUP, {"Mem": "Memory.ResidentBytes"}) == {"Mem": 1}


def test_a_condition_has_known_columns_and_its_values_as_parameters() -> None:
    text, values = condition('Cpu.RecentCores<0.1 and Owner = "a b" and Note ~ x\')', own_words)
    assert text == (
        "(1 AND Cpu.RecentCores < {w0:Float64}) AND (1 AND Owner = {w1:String}) AND "
        "(IsMine AND positionCaseInsensitiveUTF8(Note, {w2:String}) > 0)"
    )
    assert values == {"w0": "0.1", "w1": "a b", "w2": "x')"}


@given(st.text(max_size=60) | st.lists(st.sampled_from(["Owner", "=", "~", "1", "and", '"', "x"])).map(" ".join))
def test_no_text_becomes_part_of_a_condition(text: str) -> None:
    try:
        found, values = condition(text, everything)
    except WrongRequest:
        return
    for name in sorted(COLUMNS, key=len, reverse=True):
        found = found.replace(name, "C")
    for place in range(len(values)):
        found = found.replace(f"{{w{place}:String}}", "V").replace(f"{{w{place}:Float64}}", "V")
    for part in found.split(" AND (1"):
        assert part.removeprefix("(1") in {f" AND C {sign} V)" for sign in ("=", "!=", "<", "<=", ">", ">=")} | {
            " AND positionCaseInsensitiveUTF8(C, V) > 0)", "",
        }  # fmt: skip


@pytest.mark.parametrize(
    "given_words",
    [{"n": ["0"]}, {"n": ["11"]}, {"n": ["1.5"]}, {"n": ["\u0661"]}, {"n": ["1", "2"]}, {"m": ["1"]}, {"list": [""]},
     {"list": ["a,b,a,b"]}, {"list": ["c"]}],
)  # fmt: skip
def test_a_request_that_is_wrong_is_refused(given_words: dict[str, Any]) -> None:
    parameters = (
        Parameter("n", "a number", {"type": "integer", "minimum": 1, "maximum": 10, "default": 3}),
        Parameter("list", "a list", {"type": "array", "maxItems": 3, "items": {"type": "string", "enum": ["a", "b"]}}),
    )
    assert read(parameters, {}) == {"n": 3, "list": None}
    assert read(parameters, {"n": ["10"], "list": ["b,a,b"]}) == {"n": 10, "list": ("b", "a")}
    with pytest.raises(WrongRequest):
        read(parameters, given_words)


def test_defaults_are_within_their_own_bounds() -> None:
    for endpoint in ENDPOINTS:
        for parameter in endpoint.parameters:
            if parameter.default is not None:
                assert parameter.read(str(parameter.default)) == parameter.default


def test_the_document_has_every_endpoint_and_only_schemas_that_hold() -> None:
    whole = document(ENDPOINTS)
    assert json.loads(json.dumps(whole)) == whole
    assert list(whole["paths"]) == [ROOT + endpoint.path for endpoint in ENDPOINTS]
    for path, operations in whole["paths"].items():
        operation = operations["get"]
        if "post" in operations:
            jsonschema.Draft202012Validator.check_schema(
                operations["post"]["requestBody"]["content"]["application/json"]["schema"]
            )
        in_path = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
        assert in_path == (["run"] if "{run}" in path else [])
        assert set(operation["responses"]) == {"200", *map(str, ERRORS)}
        schemas = [one["content"]["application/json"]["schema"] for one in operation["responses"].values()]
        for schema in [*schemas, *(one["schema"] for one in operation["parameters"])]:
            jsonschema.Draft202012Validator.check_schema(schema)
    names = [operation["get"]["operationId"] for operation in whole["paths"].values()]
    assert len(set(names)) == len(names)
    assert set(whole["components"]["schemas"]["Run"]["properties"]) > set(COLUMNS)
