"""The pages that Ollama's clients ask for besides /api/chat and /api/generate: its version, the list of models, one model.

The rule: what Ollama says of a model's file nobody here knows, so sizes are 0 and times the epoch; a digest is made of the
model's name, since clients tell models apart by it. Capabilities are what the gateway can carry to a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.config import AmbiguousModel, ModelEntry, UnknownModel
from headrace.formats import FORMATS
from headrace.formats.json import decode_object
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest
from headrace.serve.runtime import Runtime

VERSION = "0.12.6"
"""The release of Ollama whose API is spoken here: clients refuse older ones."""

CAPABILITIES = ("completion", "tools", "thinking", "vision")

_EPOCH = "1970-01-01T00:00:00Z"
_MOST = 64 * 1024

Page = Callable[[Request], Awaitable[Response]]


def ollama_pages(runtime: Runtime, entries_for: Callable[[Request], list[ModelEntry]]) -> list[Route]:
    """The routes. `entries_for`: the models that a caller may use; raises GatewayError where it needs a key."""

    async def version(request: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def tags(request: Request) -> Response:
        return JSONResponse({"models": [_model(entry.id, entry.owned_by) for entry in entries_for(request)]})

    async def running(request: Request) -> Response:
        """Models in memory: those of providers are nobody's business here."""
        runtime.authenticate(request.headers)
        return JSONResponse({"models": []})

    async def show(request: Request) -> Response:
        key = runtime.authenticate(request.headers)
        name = await _name(request)
        try:
            runtime.catalogue.resolve(name)
        except (UnknownModel, AmbiguousModel) as error:
            raise GatewayError(ErrorInfo(code=ErrorCode.MODEL_NOT_FOUND, message=str(error), param="model")) from None
        if key is not None:
            key.require(name)
        return JSONResponse(
            {
                "modelfile": f"FROM {name}\n",
                "parameters": "",
                "template": "{{ .Prompt }}",
                "details": _details(""),
                "model_info": {"general.architecture": "headrace", "general.basename": name},
                "capabilities": CAPABILITIES,
                "modified_at": _EPOCH,
            }
        )

    return [
        Route("/api/version", _in_its_shape(version)),
        Route("/api/tags", _in_its_shape(tags)),
        Route("/api/ps", _in_its_shape(running)),
        Route("/api/show", _in_its_shape(show), methods=["POST"]),
    ]


def _in_its_shape(page: Page) -> Page:
    """The page, with errors as Ollama's clients read them."""

    async def guarded(request: Request) -> Response:
        try:
            return await page(request)
        except GatewayError as error:
            body = FORMATS["ollama"].write_error(error.info)
            return Response(body, status_code=error.info.http_status, media_type="application/json")

    return guarded


async def _name(request: Request) -> str:
    """The model that a body names; older clients call it `name`. Raises InvalidRequest."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST:
            raise InvalidRequest("The body is too large for the name of a model", status=413)
    said = decode_object(body)
    name = said.get("model") or said.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidRequest("The field `model` is missing", param="model")
    return name


def _model(name: str, family: str) -> dict[str, Any]:
    return {
        "name": name,
        "model": name,
        "modified_at": _EPOCH,
        "size": 0,
        "digest": hashlib.sha256(name.encode()).hexdigest(),
        "details": _details(family),
    }


def _details(family: str) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": "",
        "quantization_level": "",
    }
