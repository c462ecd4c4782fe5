"""What all of this format's codecs share: its names, finish reasons, token counts, signatures."""

from __future__ import annotations

import base64
from typing import Any

from headrace.formats.json import count_of
from headrace.formats.sealing import Sealed, seal, unseal
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

NAME = "gemini"
VENDOR = "google"

SIGNATURE = "thought_signature"
"""Under the vendor's name in the extensions of a text or a tool call: the signature that goes back on that very part.
Google's OpenAI-compatible endpoint has it under the same names in `extra_content`."""

REDACTED = "-redacted"
"""In a seal, in place of an id: what is sealed is redacted reasoning, not a signature."""

_S = StopReason

_READ: dict[str, StopReason] = {
    "STOP": _S.END_TURN,
    "MAX_TOKENS": _S.MAX_TOKENS,
    "MALFORMED_FUNCTION_CALL": _S.MALFORMED_TOOL_CALL,
    "UNEXPECTED_TOOL_CALL": _S.MALFORMED_TOOL_CALL,
    "TOO_MANY_TOOL_CALLS": _S.MALFORMED_TOOL_CALL,
    "MISSING_THOUGHT_SIGNATURE": _S.MALFORMED_TOOL_CALL,
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MODEL_ARMOR",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
        ),
        _S.CONTENT_FILTER,
    ),
}
_WRITE: dict[StopReason, str] = {
    _S.END_TURN: "STOP",
    _S.STOP_SEQUENCE: "STOP",
    _S.MAX_TOKENS: "MAX_TOKENS",
    _S.CONTEXT_WINDOW: "MAX_TOKENS",
    _S.TOOL_USE: "STOP",
    _S.CONTENT_FILTER: "SAFETY",
    _S.REFUSAL: "PROHIBITED_CONTENT",
    _S.PAUSE: "STOP",
    _S.MALFORMED_TOOL_CALL: "MALFORMED_FUNCTION_CALL",
    _S.OTHER: "OTHER",
}


def read_stop(raw: str, *, calls: bool) -> StopReason:
    """`calls`: the candidate made some; Gemini says STOP after them."""
    reason = _READ.get(raw, _S.OTHER)
    return _S.TOOL_USE if calls and reason is _S.END_TURN else reason


def write_stop(reason: StopReason) -> str:
    return _WRITE[reason]


_COUNTS = frozenset(
    {
        "promptTokenCount",
        "candidatesTokenCount",
        "totalTokenCount",
        "thoughtsTokenCount",
        "cachedContentTokenCount",
        "toolUsePromptTokenCount",
    }
)


def read_usage(raw: Any, vendor: str) -> Usage | None:
    """Candidates are counted without thoughts, the prompt with what came from the cache and without tools' results."""
    if not isinstance(raw, dict):
        return None
    prompt, tools = count_of(raw.get("promptTokenCount")), count_of(raw.get("toolUsePromptTokenCount"))
    answer, thoughts = count_of(raw.get("candidatesTokenCount")), count_of(raw.get("thoughtsTokenCount"))
    if prompt is None and answer is None and thoughts is None:
        return None  # early chunks may hold nothing but the kind of traffic
    if answer is None and thoughts is None and count_of(raw.get("totalTokenCount")) in (None, prompt):
        output = None
    else:
        output = (answer or 0) + (thoughts or 0)
    extra = {name: value for name, value in raw.items() if name not in _COUNTS and value is not None}
    return Usage(
        input_tokens=None if prompt is None else prompt + (tools or 0),
        output_tokens=output,
        cached_tokens=count_of(raw.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
        vendor={vendor: extra} if extra else None,
    )


def write_usage(usage: Usage) -> dict[str, Any]:
    thoughts = usage.reasoning_tokens or 0
    answer = max(0, (usage.output_tokens or 0) - thoughts)
    own = (usage.vendor or {}).get(VENDOR)
    body: dict[str, Any] = dict(own) if isinstance(own, dict) else {}
    body["promptTokenCount"] = usage.input_tokens or 0
    body["candidatesTokenCount"] = answer
    if thoughts:
        body["thoughtsTokenCount"] = thoughts
    if usage.cached_tokens:
        body["cachedContentTokenCount"] = usage.cached_tokens
    body["totalTokenCount"] = usage.total_tokens or 0
    return body


def signature_of(extensions: dict[str, Any] | None, vendor: str = VENDOR) -> str:
    """The signature of a text or a tool call, "" where it has none of this vendor's."""
    own = (extensions or {}).get(vendor)
    value = own.get(SIGNATURE) if isinstance(own, dict) else None
    return value if isinstance(value, str) else ""


def signed(signature: str, vendor: str = VENDOR) -> dict[str, Any]:
    """The extensions of a text or a tool call with this signature."""
    return {vendor: {SIGNATURE: signature}}


_SEALED = "aGVhZHJhY2U6"
"""How every seal begins in base64."""


def sealed(vendor: str, id: str, value: str) -> str:
    """A signature as Gemini's callers see it: other vendors' say whose they are, in base64, which Google's types want."""
    if vendor == VENDOR and id != REDACTED:
        return value
    return base64.b64encode(seal(vendor, id, value).encode()).decode()


def unsealed(signature: str) -> Sealed | None:
    """What was sealed; None where it is Google's own. Clients may have changed to the URL-safe alphabet."""
    if not signature.startswith(_SEALED):
        return None
    try:
        text = base64.b64decode(signature.replace("-", "+").replace("_", "/"), validate=True).decode()
    except ValueError:
        return None
    return unseal(text)


def is_foreign(signature: str, vendor: str) -> bool:
    """Whether a signature was sealed for another vendor than this."""
    found = unsealed(signature)
    return found is not None and found.vendor != vendor


def read_logprobs(raw: Any) -> list[Any] | None:
    """`logprobsResult` -> OpenAI's token objects, which the model has."""
    chosen = raw.get("chosenCandidates") if isinstance(raw, dict) else None
    if not isinstance(chosen, list) or not chosen:
        return None
    tops = raw.get("topCandidates")
    tops = tops if isinstance(tops, list) else []
    tokens = []
    for place, candidate in enumerate(chosen):
        top = tops[place] if place < len(tops) else None
        others = top.get("candidates") if isinstance(top, dict) else None
        token = _token(candidate)
        if token is not None:
            found = [one for raw_one in others if (one := _token(raw_one))] if isinstance(others, list) else []
            tokens.append({**token, "top_logprobs": found})
    return tokens or None


def _token(raw: Any) -> dict[str, Any] | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("token"), str):
        return None
    text, value = raw["token"], raw.get("logProbability")
    return {
        "token": text,
        "logprob": float(value) if isinstance(value, int | float) else 0.0,
        "bytes": list(text.encode("utf-8", "surrogatepass")),
    }


def write_logprobs(tokens: list[Any]) -> dict[str, Any]:
    said = _objects(tokens)
    return {
        "chosenCandidates": [_candidate(token) for token in said],
        "topCandidates": [
            {"candidates": [_candidate(one) for one in _objects(token.get("top_logprobs"))]} for token in said
        ],
    }


def _objects(raw: Any) -> list[dict[str, Any]]:
    return [one for one in raw if isinstance(one, dict)] if isinstance(raw, list) else []


def _candidate(token: dict[str, Any]) -> dict[str, Any]:
    return {"token": token.get("token", ""), "logProbability": token.get("logprob", 0.0)}
