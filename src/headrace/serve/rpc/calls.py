"""Calls of LlmGateway, whatever protocol brings them: a ChatRequest becomes a request.

The rule: a call is a request of the gateway format (or llm-stream) on its own path; access, plans, limits, records and
errors are those of every other request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.formats import FORMATS, Format
from headrace.formats.base import IN_THE_BODY
from headrace.formats.locate import Place
from headrace.model.errors import ErrorCode, ErrorInfo, InvalidRequest
from headrace.serve.inference import Arrived, Inference
from headrace.serve.line import Line
from headrace.serve.negotiation import Negotiated
from headrace.serve.rpc.in_flight import InFlight
from headrace.serve.rpc.messages import fill, plain
from headrace.v1 import gateway_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["LlmGateway"].full_name
GATEWAY, LLM_STREAM = FORMATS["gateway"], FORMATS["llm_stream"]

_EVENTS: dict[int, Format] = {pb.FORMAT_GATEWAY: GATEWAY, pb.FORMAT_LLM_STREAM: LLM_STREAM}
_NOT_OF_THE_JSON = ("format", "gateway_json", "llm_stream_json")
_PROTOCOL_HEADERS = ("content-type", "accept", "content-length", "content-encoding")
"""Of the call, not of the request in it."""

SHUTTING_DOWN = ErrorInfo(
    code=ErrorCode.PROVIDER_UNAVAILABLE, type="shutting_down", message="The gateway is shutting down"
)


def arrive(inference: Inference, method: str, headers: Iterable[tuple[str, str]], line: Line) -> Arrived:
    """A call whose metadata has come (lower-case names)."""
    place = Place(GATEWAY, GATEWAY.routes[0], IN_THE_BODY)
    raw = [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers
        if name not in _PROTOCOL_HEADERS
    ]
    return inference.arrive(place, f"/{SERVICE}/{method}", raw, line)


def read(inference: Inference, arrived: Arrived, message: pb.ChatRequest, *, stream: bool) -> bytes:
    """Find out who asks and what; the request as JSON. Raises GatewayError."""
    arrived.key = inference.runtime.authenticate(arrived.headers)
    native = LLM_STREAM if message.WhichOneof("json") == "llm_stream_json" else GATEWAY
    answer = _EVENTS.get(message.format, native if stream else GATEWAY)
    if not stream and answer is LLM_STREAM:
        raise InvalidRequest("format: a whole answer has no events; leave it out, or call Chat", param="format")
    arrived.negotiated = Negotiated(native, answer, answer.framings[0])
    arrived.answer = answer
    body = _body(message, stream=stream)
    inference.check_size(len(body))
    inference.read(arrived, body)
    return body


def _body(message: pb.ChatRequest, *, stream: bool) -> bytes:
    which = message.WhichOneof("json")
    if which is None:
        fields = plain(message)
        fields.pop("format", None)
        for number, said in enumerate(message.messages):
            if said.parts and said.HasField("content"):
                where = f"messages[{number}].content"
                raise InvalidRequest(f"{where}: a message has content or parts, and this has both", param=where)
    else:
        beside = [field.name for field, _ in message.ListFields() if field.name not in _NOT_OF_THE_JSON]
        if beside:
            what = f"{which} is the whole request, so {', '.join(beside)} must not be set beside it"
            raise InvalidRequest(what, param=beside[0])
        try:
            fields = msgspec.json.decode(getattr(message, which))
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequest(f"{which} is not valid JSON: {error}", param=which, type="invalid_json") from None
        if not isinstance(fields, dict):
            raise InvalidRequest(f"{which} must be a JSON object", param=which, type="invalid_json")
    return msgspec.json.encode({**fields, "stream": stream})


def chat_response(body: bytes) -> pb.ChatResponse:
    """A whole answer of the gateway format as a message."""
    message = pb.ChatResponse()
    fill(message, msgspec.json.decode(body))
    return message


def list_models(inference: Inference, headers: Any) -> pb.ListModelsResponse:
    """Raises GatewayError where the caller needs a key."""
    key = inference.runtime.authenticate(headers)
    entries = inference.runtime.catalogue.list()
    allowed = [entry for entry in entries if key is None or key.allows(entry.id)]
    return pb.ListModelsResponse(models=[pb.Model(id=entry.id, owned_by=entry.owned_by) for entry in allowed])


def cancel(inference: Inference, in_flight: InFlight, headers: Any, message: pb.CancelRequest) -> pb.CancelResponse:
    """Raises GatewayError where the caller needs a key, or names no call."""
    key = inference.runtime.authenticate(headers)
    if not message.request_id:
        raise InvalidRequest("request_id is missing: which call is to be cancelled", param="request_id")
    return pb.CancelResponse(cancelled=in_flight.cancel(key.id if key is not None else "", message.request_id))
