"""What `/api/v1` is, as OpenAPI 3.1 has it: made from the table from which routes are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from condor_joblens import __version__
from condor_joblens.hub.web import parquet
from condor_joblens.hub.web.api.endpoints import ROOT, RUN_SCHEMA, Endpoint
from condor_joblens.hub.web.api.parameters import Parameter

ERRORS = {
    400: "The request is wrong, or asks for more than one question may.",
    401: "Nobody is logged in, or the token is over.",
    403: "The token is not for this.",
    404: "It is not there, or not the viewer's.",
    405: "Nothing is changed here.",
    429: "The viewer asks for too much at once.",
    503: "The hub's store, or its audit, does not answer.",
}
"""A status -> why."""

_RUN = {
    "name": "run",
    "in": "path",
    "required": True,
    "description": "a run's name, with its # encoded as %23",
    "schema": {"type": "string", "minLength": 1, "maxLength": 300, "pattern": "^[^/]+$"},
}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """All of it, as JSON has it."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "condor_joblens hub",
            "version": __version__,
            "summary": "Records of a site's jobs, for each person those that he may see.",
        },
        "paths": {ROOT + endpoint.path: _operations(endpoint) for endpoint in endpoints},
        "components": {
            "schemas": {
                "Run": RUN_SCHEMA,
                "Error": {
                    "type": "object",
                    "properties": {"error": {"type": "string", "description": "one sentence"}},
                    "required": ["error"],
                    "additionalProperties": False,
                },
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "sessionid"},
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


def _operations(endpoint: Endpoint) -> dict[str, Any]:
    found = {"get": _operation(endpoint)}
    if endpoint.post is not None:
        found["post"] = {
            "operationId": f"post_{endpoint.name}",
            "summary": endpoint.post.help,
            "security": [{"token": []}],
            "requestBody": {"required": True, **_content(endpoint.post.body)},
            "responses": _responses(_content(endpoint.post.answer)["content"]),
        }
    return found


def _responses(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "200": {"description": "What was asked for, or that it is kept.", "content": content},
        **{
            str(status): {"description": why, **_content({"$ref": "#/components/schemas/Error"})}
            for status, why in ERRORS.items()
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    in_path = [_RUN] if "{run}" in endpoint.path else []
    files = {"text/csv": {"schema": {"type": "string"}}, parquet.KIND: {}} if endpoint.has_table else {}
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.help,
        "parameters": [*in_path, *map(_parameter, endpoint.parameters)],
        "responses": _responses({**_content(endpoint.answer)["content"], **files}),
    }
    return found


def _content(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": parameter.name,
        "in": "query",
        "required": parameter.is_required,
        "description": parameter.help,
        "schema": dict(parameter.schema),
    }
    if parameter.schema["type"] == "array":  # with commas between
        found |= {"style": "form", "explode": False}
        found["schema"]["minItems"] = 1
    return found
