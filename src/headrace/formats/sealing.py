"""Other vendors' ids and signatures in a vendor's own fields, and out of them again.

Callers send whole turns back, so what another provider needs in the next turn must survive in fields that the caller's
vendor defined. The rule: everything is reversible, nothing is forged, and nothing sealed here ever reaches that vendor.

- Anthropic's tool ids must match ^[a-zA-Z0-9_-]+$. One that does not becomes "hrid-" and its UTF-8 in unpadded
  base64url (as does one that begins with "hrid-" itself).
- A signature (and the data of redacted thinking) of another vendor becomes "headrace:VENDOR:ID:VALUE", vendor and item id
  percent-encoded. Anthropic's and OpenAI's own are base64 and hold no colon, so the two cannot be confused.
"""

from __future__ import annotations

import base64
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ID_PREFIX = "hrid-"
_SEAL = "headrace:"


def encode_id(id: str) -> str:
    """A tool call's id as Anthropic allows it."""
    if _PLAIN_ID.fullmatch(id) and not id.startswith(_ID_PREFIX):
        return id
    return _ID_PREFIX + base64.urlsafe_b64encode(id.encode()).rstrip(b"=").decode()


def decode_id(id: str) -> str:
    """The inverse of `encode_id`; ids that it did not make come back as they are."""
    if not id.startswith(_ID_PREFIX):
        return id
    encoded = id[len(_ID_PREFIX) :]
    try:
        original = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        return id
    return original if encode_id(original) == id else id


class Sealed(NamedTuple):
    """A signature (or redacted data) and whose it is. `vendor` "" where its reader did not say."""

    vendor: str
    id: str
    value: str


def seal(vendor: str, id: str, value: str) -> str:
    return f"{_SEAL}{quote(vendor, safe='')}:{quote(id, safe='')}:{value}"


def unseal(value: str) -> Sealed | None:
    """What `seal` was given, or None where the value is Anthropic's own."""
    if not value.startswith(_SEAL):
        return None
    fields = value[len(_SEAL) :].split(":", 2)
    if len(fields) != 3:
        return None
    return Sealed(unquote(fields[0]), unquote(fields[1]), fields[2])
