"""Images in Ollama's words: bare base64, without a type. Other formats need one, so it is told by how the data begins."""

from __future__ import annotations

import binascii

from headrace.model.errors import InvalidRequest

_SIGNS = (
    # base64 of the first bytes of a file
    ("iVBORw0KGg", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("Qk", "image/bmp"),
)


def image_type(data: str) -> str:
    """The MIME type of an image, by how it begins; PNG where that says nothing: those who need a type need one they know."""
    return next((media_type for sign, media_type in _SIGNS if data.startswith(sign)), "image/png")


def check_image(data: object, path: str) -> str:
    """A caller's image. Raises InvalidRequest where it is no base64."""
    if not isinstance(data, str) or not data:
        raise InvalidRequest(f"{path}: Expected an image as base64", param=path)
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except (ValueError, binascii.Error):
        raise InvalidRequest(f"{path}: The data is not valid base64", param=path) from None
    return data
