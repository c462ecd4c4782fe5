"""Mistral's chat completions (https://docs.mistral.ai/api): OpenAI's codecs with Mistral's differences around them.

Its callers ask at OpenAI's path, where nothing tells them apart; here they have a path of their own, so that Mistral's SDK
works with the gateway's address and `/mistral` behind it as `server_url`. The profile `mistral-chat` asks for this format
anywhere.
"""

from __future__ import annotations

from headrace.formats import openai_chat
from headrace.formats.base import Format, Route

from .answer import MistralStreamWriter, read_error, stream_reader, write_error, write_response
from .request import NAME, PATH, VENDOR, read_request, write_request

FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type="application/json",
    profile="mistral-chat",
    routes=(Route("/mistral/v1/chat/completions"),),
    upstream_path=PATH,
    framings=("sse", "ndjson"),
    auth_headers=openai_chat.FORMAT.auth_headers,
    read_request=read_request,
    write_request=write_request,
    stream_reader=stream_reader,
    stream_writer=MistralStreamWriter,
    read_response=openai_chat.FORMAT.read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
    framing_options=openai_chat.FORMAT.framing_options,
)
