"""Ollama's /api/generate: one prompt, one answer. Streams, bodies and errors are those of /api/chat in other fields."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headrace.formats import ollama
from headrace.formats.base import Route
from headrace.formats.ollama.lines import GENERATE
from headrace.formats.ollama.response import write_response
from headrace.formats.ollama.writer import OllamaStreamWriter

from .request_reader import NAME, read_request
from .request_writer import PATH, write_request

FORMAT = replace(
    ollama.FORMAT,
    name=NAME,
    profile="ollama-generate",
    routes=(Route(PATH),),
    upstream_path=PATH,
    read_request=read_request,
    write_request=write_request,
    stream_writer=partial(OllamaStreamWriter, GENERATE),
    write_response=partial(write_response, GENERATE),
)
