"""Requests to and from Azure OpenAI: OpenAI's bodies, and where they are sent.

Two APIs are served by Azure. The older one has the deployment, which stands for the model, in the path and a dated version
in the query; the newer one (`v1`) has OpenAI's own path and no version. Both have OpenAI's body.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from headrace.formats import openai_chat
from headrace.formats.base import IN_THE_BODY, Located, Target, WireRequest
from headrace.model.request import Request

NAME = "azure_openai"
DEPLOYMENTS = "/openai/deployments/{model}/chat/completions"
V1 = "/openai/v1/chat/completions"
API_VERSION = "2024-10-21"
"""The last dated version that Azure declared stable."""

QUIRKS = {
    "api_version": f"The version to ask for in the query, default `{API_VERSION}`; `v1`: use the newer API, whose paths "
    "begin with `/openai/v1` and have no version.",
}


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field. The deployment in the path goes before a model in the body."""
    request = openai_chat.FORMAT.read_request(body, located)
    request.format = NAME
    return request


def write_request(request: Request, target: Target) -> WireRequest:
    """A body of OpenAI's, at Azure's path. A configured `path` may hold `{model}`, too."""
    if request.format == NAME:
        request = msgspec.structs.replace(request, format=openai_chat.FORMAT.name)
    wire = openai_chat.FORMAT.write_request(request, target)
    path = target.path or _path(target.quirks.get("api_version") or API_VERSION)
    return msgspec.structs.replace(wire, path=path.replace("{model}", quote(target.model, safe="")))


def _path(version: object) -> str:
    return V1 if version == "v1" else f"{DEPLOYMENTS}?api-version={quote(str(version), safe='')}"
