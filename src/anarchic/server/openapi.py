"""The description of the routes for machines, as in docs/protocol.md."""

from __future__ import annotations

from typing import Any

MOST_EVALUATIONS = 1000  # in one answer


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
_REFUSAL = _object(error=_TEXT, message=_TEXT, remedy=_TEXT)
_OUTCOME = {"type": "string", "enum": ["accepted", "duplicate"]}
_RECEIPT = _object(status=_OUTCOME, version=_COUNT, buffered=_COUNT)
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MOST_EVALUATIONS}
_TOKEN: list[dict[str, Any]] = [{}, {"token": []}]  # none where anybody may
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def _refusals(*statuses: int) -> dict[str, Any]:
    refused = _answer("Refused, with a code and a remedy", _REFUSAL)
    return {str(status): refused for status in statuses}


def _parameter(name: str, where: str, schema: dict[str, Any], **facts: bool) -> dict[str, Any]:
    return {"name": name, "in": where, **facts, "schema": schema}


def _get(
    summary: str, parameters: list[dict[str, Any]], responses: dict[str, Any]
) -> dict[str, Any]:
    known = {"summary": summary, "parameters": parameters, "security": _TOKEN}
    return {"get": {**known, "responses": responses}}


def _shown(summary: str, content: str) -> dict[str, Any]:
    body = {content: {"schema": {"type": "object" if "json" in content else "string"}}}
    responses = {"200": {"description": summary, "content": body}, **_refusals(403, 421, 503)}
    return {"get": {"summary": summary, "responses": responses}}


_MODEL = {
    "200": {
        "description": "A safetensors file; its metadata have version, run, epoch, loss, rule, "
        "server_lr and buffers, as docs/protocol.md says",
        "content": _BYTES,
    },
    "304": {"description": "The version that was named is still the newest"},
    **_refusals(401, 403, 404, 421, 503),
}

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "anarchic", "version": "1"},
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "paths": {
        "/v1/model": _get("The newest model", [], _MODEL),
        "/v1/runs/{run}/models/{version}": _get(
            "One version; with its epoch it never changes",
            [
                _parameter("run", "path", _TEXT, required=True),
                _parameter("version", "path", _COUNT, required=True),
                _parameter("epoch", "query", _TEXT),
            ],
            _MODEL,
        ),
        "/v1/updates": {
            "post": {
                "summary": "Hand an update back: a direction, and buffers as they are at the end",
                "security": _TOKEN,
                "requestBody": {"required": True, "content": _BYTES},
                "responses": {
                    "202": _answer("Accepted: it is on disk and will count once", _RECEIPT),
                    "200": _answer("Seen before: it counts once", _RECEIPT),
                    **_refusals(400, 401, 403, 408, 409, 411, 413, 415, 421, 422, 429, 503, 507),
                },
            }
        },
        "/v1/status": _shown("Where the run stands", "application/json"),
        "/v1/evaluations": _get(
            "What the newest evaluated versions came to, the oldest first",
            [_parameter("limit", "query", _LIMIT)],
            {
                "200": _answer("Evaluations", {"type": "object"}),
                **_refusals(400, 401, 403, 421, 503),
            },
        ),
        "/metrics": _shown("Counters for Prometheus", "text/plain"),
        "/healthz": _shown("Whether the server is well", "application/json"),
    },
}
