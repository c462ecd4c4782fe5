"""Ollama's /api/chat, for its clients and for its servers (DOSSIER 10). /api/generate is a format beside it.

words.py holds its vocabulary, lines.py what a line of a stream looks like; reader and writer serve both endpoints.
"""

from __future__ import annotations

from functools import partial

from headrace.formats.base import Format, Route, bearer

from .errors import read_error, write_error
from .lines import CHAT
from .reader import OllamaStreamReader
from .request_reader import read_request
from .request_writer import PATH, write_request
from .response import read_response, write_response
from .words import NAME, VENDOR
from .writer import OllamaStreamWriter

QUIRKS = {
    "think_levels": "`true`: the models take a level of thinking (`low` to `high`); `false`: only whether to think. "
    "Default: those of the gpt-oss family do.",
}

FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type="application/json",
    profile="ollama-chat",
    routes=(Route(PATH),),
    upstream_path=PATH,
    framings=("ndjson", "sse"),
    auth_headers=bearer,
    read_request=read_request,
    write_request=write_request,
    stream_reader=OllamaStreamReader,
    stream_writer=partial(OllamaStreamWriter, CHAT),
    read_response=read_response,
    write_response=partial(write_response, CHAT),
    read_error=read_error,
    write_error=write_error,
    quirks=QUIRKS,
    signs_of_life=False,  # official clients take a blank line for broken JSON
)
