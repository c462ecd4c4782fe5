"""The ordinary pages: the list of models, health and readiness, and JSON answers for whatever is not served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace import __version__
from headrace.config import ModelEntry
from headrace.formats import FORMATS
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError
from headrace.serve.metrics import CONTENT_TYPE, exposition
from headrace.serve.negotiation import PLACES
from headrace.serve.ollama import ollama_pages
from headrace.serve.runtime import Runtime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


RPC_PREFIX = "/headrace.v1.LlmGateway/"
"""Where Connect and gRPC-Web are (docs/grpc.md)."""

needs_extra = JSONResponse(
    {"code": "unimplemented", "message": "Connect needs an extra on the gateway: pip install headrace[grpc]"}, 501
)


def pages(runtime: Runtime, live: Callable[[], int]) -> Starlette:
    """The Starlette application behind every path that is not an inference path. `live`: requests in flight."""

    async def index(request: Request) -> Response:
        return JSONResponse({"service": "headrace", "version": __version__, "inference": PLACES.paths})

    async def healthz(request: Request) -> Response:
        """The process lives."""
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        """It can take requests: providers are configured and the embedded replay is up."""
        if not runtime.ready:
            return JSONResponse({"status": "not ready"}, status_code=503)
        return JSONResponse({"status": "ready"})

    def entries_for(request: Request) -> list[ModelEntry]:
        """The models that the caller may use. Raises GatewayError where it needs a key."""
        return runtime.models(request.headers)

    async def providers(request: Request) -> Response:
        """Each provider's models that were asked lately, with the state of their circuits."""
        runtime.authenticate(request.headers)
        breakers = runtime.state.breakers
        circuits = {} if breakers is None else breakers.snapshot(asyncio.get_running_loop().time())
        data = [
            {
                "id": name,
                "format": provider.format,
                "vendor": provider.vendor,
                "models": {model: state for (owner, model), state in circuits.items() if owner == name},
            }
            for name, provider in runtime.config.providers.items()
        ]
        return JSONResponse({"object": "list", "data": data})

    async def metrics(request: Request) -> Response:
        """Figures for Prometheus; no key is needed, and no caller's name is in them."""
        now = asyncio.get_running_loop().time()
        return Response(exposition(runtime.state.breakers, live, now), headers={"content-type": CONTENT_TYPE})

    async def models(request: Request) -> Response:
        entries = entries_for(request)
        if "anthropic-version" in request.headers:
            data = [_anthropic_model(entry) for entry in entries]
            first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
            return JSONResponse({"data": data, "has_more": False, "first_id": first, "last_id": last})
        return JSONResponse(list_of_models(entries))

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        for entry in entries_for(request):
            if entry.id == name:
                anthropic = "anthropic-version" in request.headers
                return JSONResponse(_anthropic_model(entry) if anthropic else _openai_model(entry))
        return _error(404, f"There is no model {name!r} in the list. GET /v1/models shows it", "model_not_found")

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            paths = ", ".join(PLACES.paths)
            message = f"{request.url.path} is not served here. POST to one of {paths}, or GET /v1/models"
            return _error(404, message, "not_found")
        if error.status_code == 405:
            return method_not_allowed(request.method, request.url.path, dict(error.headers or {}).get("Allow", "GET"))
        return _error(error.status_code, str(error.detail), "http_error")

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, GatewayError)
        body = FORMATS["gateway"].write_error(error.info)
        return Response(body, status_code=error.info.http_status, media_type="application/json")

    return Starlette(
        routes=[
            Route("/", index),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/v1/models", models),
            Route("/v1/providers", providers),
            Route("/metrics", metrics),
            Route("/v1/models/{name:path}", model),
            *ollama_pages(runtime, entries_for),
        ],
        exception_handlers={HTTPException: failed, GatewayError: refused},
    )


def method_not_allowed(method: str, path: str, allow: str) -> Response:
    """405 with the methods that are allowed."""
    return _error(405, f"{method} is not allowed on {path}: use {allow}", "method_not_allowed", {"allow": allow})


def _error(status: int, message: str, type: str, headers: dict[str, str] | None = None) -> Response:
    info = ErrorInfo(code=ErrorCode.INVALID_REQUEST, status=status, type=type, message=message)
    body = FORMATS["gateway"].write_error(info)
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def list_of_models(entries: list[ModelEntry]) -> dict[str, Any]:
    """As OpenAI's SDKs and most others read it."""
    return {"object": "list", "data": [_openai_model(entry) for entry in entries]}


def _openai_model(entry: ModelEntry) -> dict[str, Any]:
    return {"id": entry.id, "object": "model", "created": 0, "owned_by": entry.owned_by}


def _anthropic_model(entry: ModelEntry) -> dict[str, Any]:
    # Nobody tells us when a model was made; both SDKs want a date.
    return {"id": entry.id, "type": "model", "display_name": entry.id, "created_at": _EPOCH.isoformat()}
