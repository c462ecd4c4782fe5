"""REQUEST_CANNOT: what of a request a provider of each format cannot be told, with the reason.

The tests of the matrix apply a limit's `change` to what a caller asked and demand that exactly this arrives, and that
`WireRequest.lost` names what the change says it does; docs/formats.md is made from the reasons. Only requests that come in
another format are changed: in the same format a body goes on as it is.
"""

from __future__ import annotations

from headrace.formats.mistral.shapes import nine
from headrace.model.content import ToolCall, ToolResult
from headrace.model.request import ReasoningConfig, Request

from .columns import COLUMNS
from .request_limits import (
    MERGED,
    OTHER_SAMPLING,
    STAYS,
    RequestLimit,
    bare_schema,
    clear,
    cooled,
    default_max_tokens,
    drop,
    effort,
    images_after_results,
    is_audio,
    is_document_by_url,
    is_reasoning,
    named_schema,
    no_blank_stops,
    no_detail,
    no_error_mark,
    no_flag_beside_none,
    no_names,
    no_text_format,
    nothing,
    only_tools_of,
    parts_of,
    text_documents_as_data,
    text_documents_as_text,
)

_OURS: tuple[RequestLimit, ...] = (
    RequestLimit("vendors' extensions", "handed on under their vendors' names", nothing),
    RequestLimit("metadata, budget", "metadata stay here, a budget goes on", nothing),
    RequestLimit("documents", "plain text goes as base64 data", text_documents_as_data),
    RequestLimit("vendors' own tools", "left out, and named", only_tools_of("")),
)

REQUEST_CANNOT: dict[str, tuple[RequestLimit, ...]] = {
    "openai_chat": (
        STAYS,
        MERGED,
        RequestLimit(
            "reasoning sent back",
            "to OpenAI none, which refuses it; to its family in `reasoning_details`, each vendor's own alone",
            drop("reasoning.*", is_reasoning),
        ),
        RequestLimit("documents", "by URL left out, and named", drop("document", is_document_by_url)),
        RequestLimit("tool results", "the mark of an error is left out, and named", no_error_mark),
        RequestLimit("tool results", "images follow in a user message: results hold text alone", images_after_results),
        RequestLimit("documents", "plain text becomes text", text_documents_as_text),
        RequestLimit("`top_k`", "left out, and named (sent with the provider's quirk `top_k`)", clear("top_k")),
        RequestLimit("vendors' own tools", "those of other vendors left out, and named", only_tools_of("openai")),
        RequestLimit("structured output", "`text` is not sent, being what is meant without it", no_text_format),
        RequestLimit("structured output", "a schema without a name is called `response`", named_schema),
        RequestLimit(
            "reasoning effort and budget",
            "a budget becomes an effort; that it is switched off is not sent, as models that cannot reason refuse it; "
            "both are named",
            effort,
        ),
    ),
    "anthropic": (
        STAYS,
        MERGED,
        RequestLimit("audio", "left out, and named", drop("audio", is_audio)),
        RequestLimit("names of messages", "left out, and named", no_names),
        RequestLimit("images", "`detail` left out, and named", no_detail),
        RequestLimit("other sampling", "left out, and named", clear(*OTHER_SAMPLING)),
        RequestLimit("`max_tokens`", "4096 where the caller sets none: it is required", default_max_tokens),
        RequestLimit("`temperature`, `top_p`", "above 1 it is 1, and named", cooled),
        RequestLimit("stop sequences", "blank ones left out, and named: they are refused", no_blank_stops),
        RequestLimit("vendors' own tools", "those of other vendors left out, and named", only_tools_of("anthropic")),
        RequestLimit("structured output", "`text` is not sent, being what is meant without it", no_text_format),
        RequestLimit(
            "structured output",
            "any JSON: asked for in the system prompt; a schema goes without its name and description, and is always strict",
            bare_schema,
        ),
        RequestLimit("tool choice", "`none` has no flag for parallel calls beside it", no_flag_beside_none),
        RequestLimit("reasoning sent back", "Anthropic's alone, signed, byte for byte", nothing),
    ),
    "llm_stream": _OURS,
    "gateway": _OURS,
}

REQUEST_CANNOT |= {name: column.request_limits for name, column in COLUMNS.items()}


def _nine_letters(request: Request, lost: set[str]) -> None:
    for part in parts_of(request):
        if isinstance(part, ToolCall):
            part.id = nine(part.id)
        elif isinstance(part, ToolResult):
            part.tool_call_id = nine(part.tool_call_id)


def _two_efforts(request: Request, lost: set[str]) -> None:
    if request.reasoning is not None and request.reasoning.effort not in (None, "none"):
        request.reasoning = ReasoningConfig(effort="high")


REQUEST_CANNOT["mistral"] = (
    *REQUEST_CANNOT["openai_chat"],
    RequestLimit("tool calls", "ids become nine letters and digits", _nine_letters),
    RequestLimit("reasoning effort and budget", "`high`, or `none`", _two_efforts),
    RequestLimit("other sampling", "log probabilities left out", clear("logprobs", "top_logprobs")),
    RequestLimit("`user`", "left out", clear("user")),
)

REQUEST_ROWS = (
    "system prompts",
    "names of messages",
    "images",
    "documents",
    "audio",
    "tool calls",
    "tool results",
    "reasoning sent back",
    "structured output",
    "tool choice",
    "stop sequences",
    "`max_tokens`",
    "`temperature`, `top_p`",
    "`top_k`",
    "other sampling",
    "`user`",
    "reasoning effort and budget",
    "vendors' own tools",
    "vendors' extensions",
    "metadata, budget",
)
"""What a request can hold: the document's rows."""
