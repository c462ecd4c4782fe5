"""Steps of reading and writing a request's body that the two formats share."""

from __future__ import annotations

from typing import Any

from headrace.formats.base import Target
from headrace.formats.json import merged
from headrace.model.errors import InvalidRequest
from headrace.model.request import Request

from .extensions import OURS, WireExtensions, check_keys, from_wire, put, to_wire
from .fields import bad, read_as
from .options import OPTION_NAMES, Options, apply_options

OURS_PATH = 'extensions["vendor:headrace"]'


def apply_extensions(request: Request, extensions: WireExtensions | None) -> None:
    """Take a request's extensions: our own options are applied, the rest waits under its vendor's name.

    A vendor's value that is no object cannot be merged into anything: it is ignored, and named in `request.lost`.
    """
    check_keys(extensions, "extensions")
    for vendor, fields in (from_wire(extensions) or {}).items():
        if vendor == OURS:
            if not isinstance(fields, dict):
                bad(OURS_PATH, "must be an object")
            options = {name: value for name, value in fields.items() if name in OPTION_NAMES}
            if options:
                apply_options(request, read_options(options), OURS_PATH)
            fields = {name: value for name, value in fields.items() if name not in OPTION_NAMES}
        if isinstance(fields, dict):
            if fields:
                request.extensions[vendor] = fields
        else:
            request.lost.append(f"request.extensions.vendor:{vendor}")


def read_options(options: dict[str, Any]) -> Options:
    """Options out of `vendor:headrace`. Raises InvalidRequest with their whole path."""
    try:
        return read_as(options, Options)
    except InvalidRequest as error:
        param = error.info.param or ""
        bad(f"{OURS_PATH}.{param}", error.info.message.removeprefix(param).removeprefix(":").strip())


def write_extensions(request: Request, target: Target, options: dict[str, Any]) -> WireExtensions:
    """Extensions for the provider: everybody's but its own (those are merged into the body), and our options."""
    others = {vendor: fields for vendor, fields in request.extensions.items() if vendor != target.vendor}
    extensions = to_wire(others)
    for name, value in options.items():
        put(extensions, OURS, name, value)
    return extensions


def merge_own(body: dict[str, Any], request: Request, target: Target) -> dict[str, Any]:
    """The body with the extension that is meant for this provider's vendor laid over it."""
    fields = request.extensions.get(target.vendor)
    return merged(body, fields) if isinstance(fields, dict) else body
