"""The description of the routes for machines, as in docs/protocol.md."""

from __future__ import annotations

from typing import Any

from anarchic.server.overview import SORTS

MOST_EVALUATIONS = 1000  # in one answer
MOST_LISTED = 2000  # workers in one answer


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
_REFUSAL = _object(error=_TEXT, message=_TEXT, remedy=_TEXT)
_OUTCOME = {"type": "string", "enum": ["accepted", "duplicate"]}
_RECEIPT = _object(status=_OUTCOME, version=_COUNT, buffered=_COUNT)
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MOST_EVALUATIONS}
_PAGE = {"type": "integer", "maximum": MOST_LISTED}
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
                    **_refusals(
                        400, 401, 403, 408, 409, 410, 411, 413, 415, 421, 422, 429, 503, 507
                    ),
                },
            }
        },
        "/v1/status": _shown("Where the run stands", "application/json"),
        "/v1/workers": _get(
            "Where the run stands and what each worker did, for operators",
            [
                _parameter("sort", "query", {"type": "string", "enum": list(SORTS)}),
                _parameter("first", "query", {**_PAGE, "minimum": 0}),
                _parameter("limit", "query", {**_PAGE, "minimum": 1}),
            ],
            {
                "200": _answer("A page of workers", {"type": "object"}),
                **_refusals(400, 401, 403, 421, 503),
            },
        ),
        "/v1/token": _get(
            "Whose token came with the request, and what it may do",
            [],
            {"200": _answer("The token", {"type": "object"}), **_refusals(401, 403, 421, 503)},
        ),
        "/v1/evaluations": _get(
            "What the newest evaluated versions came to, the oldest first",
            [_parameter("limit", "query", _LIMIT)],
            {
                "200": _answer("Evaluations", {"type": "object"}),
                **_refusals(400, 401, 403, 421, 503),
            },
        ),
        "/v1/commands": {
            **_get(
                "What operators did, and what became of it",
                [],
                {"200": _answer("Commands", {"type": "object"}), **_refusals(401, 403, 421, 503)},
            ),
            "post": {
                "summary": "Steer the run: pause, resume, end, set, rollback",
                "security": [{"token": []}],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _object(kind=_TEXT)}},
                },
                "responses": {
                    "202": _answer("Given: the server that leads applies it", {"type": "object"}),
                    **_refusals(400, 401, 403, 408, 411, 413, 415, 421, 503),
                },
            },
        },
        "/v1/revocations": {
            "post": {
                "summary": "Revoke the token of a worker",
                "security": [{"token": []}],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _object(worker=_TEXT)}},
                },
                "responses": {
                    "200": _answer("Revoked: it is refused within a second", {"type": "object"}),
                    **_refusals(400, 401, 403, 408, 411, 413, 415, 421, 503),
                },
            },
        },
        "/metrics": _shown("Counters, gauges and histograms for Prometheus", "text/plain"),
        "/healthz": _shown("Whether the server is well", "application/json"),
        "/readyz": _shown("Whether requests should come to this server", "application/json"),
    },
}


def openapi_of_runs() -> dict[str, Any]:
    """The same for a server of several runs: all but a few paths are below that of a run."""
    run = _parameter("run", "path", _TEXT, required=True)
    own = {path: OPENAPI["paths"][path] for path in ("/metrics", "/healthz", "/readyz")}
    paths = {
        (path if path.startswith("/v1/runs/") else f"/v1/runs/{{run}}/{path[len('/v1/') :]}"): told
        for path, told in OPENAPI["paths"].items()
        if path not in own
    }
    return {
        **OPENAPI,
        "paths": {**{path: _named(told, run) for path, told in paths.items()}, **own},
    }


def _named(methods: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """The methods of a path below that of a run."""
    found = {}
    for method, told in methods.items():
        others = [p for p in told.get("parameters", []) if p["name"] != "run"]
        refused = {**_refusals(404, 503), **told["responses"]}
        found[method] = {**told, "parameters": [run, *others], "responses": refused}
    return found
