"""Azure OpenAI: OpenAI's Chat Completions at paths and with a key of Azure's own.

Bodies, streams and errors are OpenAI's, and its codecs are used as they are: what Azure adds to them (results of its
content filter, a first chunk with blank names, an `innererror`) is read by the tolerant reader, goes on as it came to
Azure's own callers, and is never made up for them. So a request of OpenAI's format goes to Azure unchanged, too.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.formats import openai_chat
from headrace.formats.base import Route

from .request import DEPLOYMENTS, NAME, QUIRKS, V1, read_request, write_request


def _auth_headers(credential: str) -> tuple[tuple[str, str], ...]:
    return (("api-key", credential),)


FORMAT = replace(
    openai_chat.FORMAT,
    name=NAME,
    profile="azure-openai-chat",
    routes=(Route(DEPLOYMENTS), Route(V1)),
    upstream_path=DEPLOYMENTS,
    auth_headers=_auth_headers,
    read_request=read_request,
    write_request=write_request,
    quirks={**openai_chat.FORMAT.quirks, **QUIRKS},
)
