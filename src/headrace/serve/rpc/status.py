"""Statuses of gRPC and Connect for the gateway's error codes: one table, and what a status carries beside its code."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.any_pb2 import Any as AnyMessage

from headrace.formats.gateway.errors import error_object
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.serve.rpc.messages import fill
from headrace.v1 import gateway_pb2 as pb


class Code(NamedTuple):
    """`number`: gRPC's; `name`: Connect's; `http`: the HTTP status of Connect's unary errors."""

    number: int
    name: str
    http: int


CANCELLED = Code(1, "canceled", 499)
INVALID_ARGUMENT = Code(3, "invalid_argument", 400)
DEADLINE_EXCEEDED = Code(4, "deadline_exceeded", 504)
NOT_FOUND = Code(5, "not_found", 404)
PERMISSION_DENIED = Code(7, "permission_denied", 403)
RESOURCE_EXHAUSTED = Code(8, "resource_exhausted", 429)
FAILED_PRECONDITION = Code(9, "failed_precondition", 400)
ABORTED = Code(10, "aborted", 409)
UNIMPLEMENTED = Code(12, "unimplemented", 501)
INTERNAL = Code(13, "internal", 500)
UNAVAILABLE = Code(14, "unavailable", 503)
UNAUTHENTICATED = Code(16, "unauthenticated", 401)

STATUS_TABLE: dict[ErrorCode, Code] = {
    ErrorCode.UNAUTHENTICATED: UNAUTHENTICATED,
    ErrorCode.FORBIDDEN: PERMISSION_DENIED,
    ErrorCode.MODEL_NOT_FOUND: NOT_FOUND,
    ErrorCode.INVALID_REQUEST: INVALID_ARGUMENT,
    ErrorCode.BUDGET_EXCEEDED: FAILED_PRECONDITION,  # asking again does not help, which RESOURCE_EXHAUSTED would say
    ErrorCode.QUOTA_EXCEEDED: RESOURCE_EXHAUSTED,
    ErrorCode.PROVIDER_RATE_LIMITED: RESOURCE_EXHAUSTED,
    ErrorCode.PROVIDER_UNAVAILABLE: UNAVAILABLE,
    ErrorCode.TIMEOUT: DEADLINE_EXCEEDED,
    ErrorCode.CONSUMER_TOO_SLOW: ABORTED,
    ErrorCode.CANCELLED: CANCELLED,
    ErrorCode.INTERNAL_ERROR: INTERNAL,
}

_FINER: dict[str, Code] = {
    # type of an invalid_request
    "request_too_large": RESOURCE_EXHAUSTED,
    "idempotency_key_in_use": ABORTED,
    "request_timeout": DEADLINE_EXCEEDED,
}


def code_of(info: ErrorInfo) -> Code:
    """The status of an error."""
    if info.code is ErrorCode.INVALID_REQUEST and info.type in _FINER:
        return _FINER[info.type]
    if info.code is ErrorCode.CANCELLED and info.status == 503:
        return UNAVAILABLE  # by the gateway's own end: asked elsewhere, it may succeed
    return STATUS_TABLE[info.code]


def error_message(info: ErrorInfo) -> pb.Error:
    """The error in the gateway format's words, for the details of a status."""
    message = pb.Error()
    fill(message, error_object(info))
    return message


def status_details(info: ErrorInfo) -> bytes:
    """A google.rpc.Status: the value of grpc-status-details-bin."""
    detail = AnyMessage()
    detail.Pack(error_message(info))
    return pb.Status(code=code_of(info).number, message=info.message, details=[detail]).SerializeToString()
