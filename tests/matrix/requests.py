"""Requests for the matrix: each one as the model has it, and by hand in the JSON of every caller's format that can say it.

The two formats of our own differ only in where options stand, so `standard` makes both bodies from one description.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from headrace.model.content import (
    Media,
    Reasoning,
    RedactedReasoning,
    Text,
    ToolCall,
    ToolResult,
)
from headrace.model.request import (
    Budget,
    Message,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
    VendorTool,
)

from .columns import COLUMNS

PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQK"
WAV = "UklGRiQAAAA="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NO_ARGUMENTS = {"type": "object", "properties": {}}
_DRAFT = frozenset({"max_tokens", "temperature", "top_p", "stop_sequences"})


@dataclass
class Case:
    id: str
    request: Request
    """What every caller means by it, as far as its format can say it."""
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Caller's format -> body, without model, stream and version."""


def user(*parts: Any) -> Message:
    return Message(role="user", parts=[Text(text=part) if isinstance(part, str) else part for part in parts])


def system(text: str) -> Message:
    return Message(role="system", parts=[Text(text=text)])


def assistant(*parts: Any) -> Message:
    return Message(role="assistant", parts=[Text(text=part) if isinstance(part, str) else part for part in parts])


def tool(id: str, *parts: Any, is_error: bool = False) -> Message:
    held = [Text(text=part) if isinstance(part, str) else part for part in parts]
    return Message(role="tool", parts=[ToolResult(tool_call_id=id, parts=held, is_error=is_error)])


def ask(*messages: Message, **fields: Any) -> Request:
    return Request(model="m", messages=list(messages) or [user("Hi")], **fields)


def standard(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, **options: Any
) -> dict[str, Any]:
    """The body in llm_stream and in the gateway format."""
    shared: dict[str, Any] = {"messages": messages, **({"tools": tools} if tools else {})}
    shared |= {name: options.pop(name) for name in ("metadata", "extensions") if name in options}
    draft = {name: value for name, value in options.items() if name in _DRAFT}
    ours = {name: value for name, value in options.items() if name not in _DRAFT}
    llm_stream = dict(shared)
    if draft:
        llm_stream["parameters"] = draft
    if ours:
        llm_stream["extensions"] = {**shared.get("extensions", {}), "vendor:headrace": ours}
    return {"llm_stream": llm_stream, "gateway": {**shared, **draft, **ours}}


def plain(**fields: Any) -> dict[str, Any]:
    """The shortest conversation, in the JSON that OpenAI's and Anthropic's callers share."""
    return {"messages": [{"role": "user", "content": "Hi"}], **fields}


def options(id: str, request: Request, ours: dict[str, Any], openai: Any = None, anthropic: Any = None) -> Case:
    """A case whose conversation does not matter."""
    bodies = standard([{"role": "user", "content": "Hi"}], **ours)
    if openai is not None:
        bodies["openai_chat"] = plain(**openai)
    if anthropic is not None:
        bodies["anthropic"] = plain(**anthropic)
    return Case(id, request, bodies)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _function_call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


TOOL = Tool(name="weather", description="The weather of a city", parameters=SCHEMA)
_TOOLS = {
    "ours": [{"name": "weather", "description": "The weather of a city", "parameters": SCHEMA}],
    "openai_chat": [
        {
            "type": "function",
            "function": {"name": "weather", "description": "The weather of a city", "parameters": SCHEMA},
        }
    ],
    "anthropic": [{"name": "weather", "description": "The weather of a city", "input_schema": SCHEMA}],
}

CASES: list[Case] = [
    Case(
        "conversation",
        ask(system("Be brief."), user("Hi"), assistant("Hello."), user("Who\u2028are you? \U0001f600")),
        {
            **standard(
                [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": "Hello."},
                    {"role": "user", "content": [_text("Who\u2028are you? \U0001f600")]},
                ]
            ),
            "openai_chat": {
                "messages": [
                    {"role": "developer", "content": "Be brief."},
                    {"role": "user", "content": [_text("Hi")]},
                    {"role": "assistant", "content": "Hello."},
                    {"role": "user", "content": "Who\u2028are you? \U0001f600"},
                ]
            },
            "anthropic": {
                "system": [_text("Be brief.")],
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": [_text("Hello.")]},
                    {"role": "user", "content": "Who\u2028are you? \U0001f600"},
                ],
            },
        },
    ),
    Case(
        "names",
        ask(Message(role="user", parts=[Text(text="Hi")], name="anna")),
        {
            **standard([{"role": "user", "content": "Hi", "name": "anna"}]),
            "openai_chat": {"messages": [{"role": "user", "content": "Hi", "name": "anna"}]},
        },
    ),
    Case(
        "image",
        ask(
            user(
                "Look",
                Media(type="image", media_type="image/png", data=PNG),
                Media(type="image", url="https://example.com/a.png"),
            )
        ),
        {
            **standard(
                [
                    {
                        "role": "user",
                        "content": [
                            _text("Look"),
                            {"type": "image", "media_type": "image/png", "data": PNG},
                            {"type": "image", "url": "https://example.com/a.png"},
                        ],
                    }
                ]
            ),
            "openai_chat": {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            _text("Look"),
                            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                        ],
                    }
                ]
            },
            "anthropic": {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            _text("Look"),
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                            },
                            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                        ],
                    }
                ]
            },
        },
    ),
    Case(
        "image detail",
        ask(user(Media(type="image", url="https://example.com/a.png", detail="low"))),
        {
            **standard(
                [
                    {
                        "role": "user",
                        "content": [{"type": "image", "url": "https://example.com/a.png", "detail": "low"}],
                    }
                ]
            ),
            "openai_chat": {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
                        ],
                    }
                ]
            },
        },
    ),
    Case(
        "document",
        ask(user("Read", Media(type="document", media_type="application/pdf", data=PDF, title="report.pdf"))),
        {
            **standard(
                [
                    {
                        "role": "user",
                        "content": [
                            _text("Read"),
                            {
                                "type": "document",
                                "media_type": "application/pdf",
                                "data": PDF,
                                "title": "report.pdf",
                            },
                        ],
                    }
                ]
            ),
            "openai_chat": {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            _text("Read"),
                            {
                                "type": "file",
                                "file": {
                                    "filename": "report.pdf",
                                    "file_data": f"data:application/pdf;base64,{PDF}",
                                },
                            },
                        ],
                    }
                ]
            },
            "anthropic": {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            _text("Read"),
                            {
                                "type": "document",
                                "title": "report.pdf",
                                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                            },
                        ],
                    }
                ]
            },
        },
    ),
    Case(
        "document as text",
        ask(user(Media(type="document", media_type="text/plain", text="All is well.", title="note"))),
        {
            "anthropic": {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "document",
                                "title": "note",
                                "source": {"type": "text", "media_type": "text/plain", "data": "All is well."},
                            }
                        ],
                    }
                ]
            }
        },
    ),
    Case(
        "document by URL",
        ask(user("Read", Media(type="document", url="https://example.com/a.pdf"))),
        {
            **standard(
                [{"role": "user", "content": [_text("Read"), {"type": "document", "url": "https://example.com/a.pdf"}]}]
            ),
            "anthropic": {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            _text("Read"),
                            {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
                        ],
                    }
                ]
            },
        },
    ),
    Case(
        "audio",
        ask(user("Listen", Media(type="audio", media_type="audio/wav", data=WAV))),
        {
            **standard(
                [
                    {
                        "role": "user",
                        "content": [_text("Listen"), {"type": "audio", "media_type": "audio/wav", "data": WAV}],
                    }
                ]
            ),
            "openai_chat": {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            _text("Listen"),
                            {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}},
                        ],
                    }
                ]
            },
        },
    ),
    Case(
        "tool calls",
        ask(
            user("Weather in Oslo and Bergen?"),
            assistant(
                "I will look.",
                ToolCall(id="call_1", name="weather", arguments='{"city": "Oslo", "n": 1.50}'),
                ToolCall(id="call_2", name="weather", arguments='{"city":"Bergen"}'),
            ),
            tool("call_1", "rain"),
            tool("call_2", "no such city", is_error=True),
            user("And now?"),
            tools=[TOOL],
        ),
        {
            **standard(
                [
                    {"role": "user", "content": "Weather in Oslo and Bergen?"},
                    {
                        "role": "assistant",
                        "content": "I will look.",
                        "tool_calls": [
                            {"id": "call_1", "name": "weather", "arguments": '{"city": "Oslo", "n": 1.50}'},
                            {"id": "call_2", "name": "weather", "arguments": '{"city":"Bergen"}'},
                        ],
                    },
                    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
                    {
                        "role": "tool",
                        "tool_call_id": "call_2",
                        "content": "no such city",
                        "extensions": {"vendor:headrace": {"is_error": True}},
                    },
                    {"role": "user", "content": "And now?"},
                ],
                _TOOLS["ours"],
            ),
            "openai_chat": {
                "messages": [
                    {"role": "user", "content": "Weather in Oslo and Bergen?"},
                    {
                        "role": "assistant",
                        "content": "I will look.",
                        "tool_calls": [
                            _function_call("call_1", "weather", '{"city": "Oslo", "n": 1.50}'),
                            _function_call("call_2", "weather", '{"city":"Bergen"}'),
                        ],
                    },
                    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
                    {"role": "tool", "tool_call_id": "call_2", "content": "no such city"},
                    {"role": "user", "content": "And now?"},
                ],
                "tools": _TOOLS["openai_chat"],
            },
            "anthropic": {
                "messages": [
                    {"role": "user", "content": "Weather in Oslo and Bergen?"},
                    {
                        "role": "assistant",
                        "content": [
                            _text("I will look."),
                            {
                                "type": "tool_use",
                                "id": "call_1",
                                "name": "weather",
                                "input": {"city": "Oslo", "n": 1.50},
                            },
                            {"type": "tool_use", "id": "call_2", "name": "weather", "input": {"city": "Bergen"}},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {"type": "tool_result", "tool_use_id": "call_1", "content": "rain"},
                            {
                                "type": "tool_result",
                                "tool_use_id": "call_2",
                                "content": [_text("no such city")],
                                "is_error": True,
                            },
                            _text("And now?"),
                        ],
                    },
                ],
                "tools": _TOOLS["anthropic"],
            },
        },
    ),
    Case(
        "a call without arguments",
        ask(
            user("Time?"),
            assistant(ToolCall(id="call_1", name="now", arguments="{}")),
            tool("call_1", "noon"),
            tools=[Tool(name="now", description="The time", parameters=NO_ARGUMENTS)],
        ),
        {
            **standard(
                [
                    {"role": "user", "content": "Time?"},
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [{"id": "call_1", "name": "now", "arguments": ""}],
                    },
                    {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
                ],
                [{"name": "now", "description": "The time", "parameters": NO_ARGUMENTS}],
            ),
            "openai_chat": {
                "messages": [
                    {"role": "user", "content": "Time?"},
                    {"role": "assistant", "content": None, "tool_calls": [_function_call("call_1", "now", "")]},
                    {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
                ],
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "now", "description": "The time", "parameters": NO_ARGUMENTS},
                    }
                ],
            },
            "anthropic": {
                "messages": [
                    {"role": "user", "content": "Time?"},
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "call_1", "name": "now", "input": {}}],
                    },
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "noon"}],
                    },
                ],
                "tools": [{"name": "now", "description": "The time", "input_schema": NO_ARGUMENTS}],
            },
        },
    ),
    Case(
        "an image as a tool's result",
        ask(
            user("Draw"),
            assistant(ToolCall(id="call_1", name="draw", arguments="{}")),
            tool("call_1", "Done", Media(type="image", media_type="image/png", data=PNG)),
            tools=[Tool(name="draw", description="Draws", parameters=NO_ARGUMENTS)],
        ),
        {
            **standard(
                [
                    {"role": "user", "content": "Draw"},
                    {"role": "assistant", "tool_calls": [{"id": "call_1", "name": "draw", "arguments": "{}"}]},
                    {
                        "role": "tool",
                        "tool_call_id": "call_1",
                        "content": [_text("Done"), {"type": "image", "media_type": "image/png", "data": PNG}],
                    },
                ],
                [{"name": "draw", "description": "Draws", "parameters": NO_ARGUMENTS}],
            ),
            "anthropic": {
                "messages": [
                    {"role": "user", "content": "Draw"},
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "call_1", "name": "draw", "input": {}}],
                    },
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": "call_1",
                                "content": [
                                    _text("Done"),
                                    {
                                        "type": "image",
                                        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                                    },
                                ],
                            }
                        ],
                    },
                ],
                "tools": [{"name": "draw", "description": "Draws", "input_schema": NO_ARGUMENTS}],
            },
        },
    ),
    Case(
        "reasoning sent back",
        ask(
            user("Think"),
            assistant(
                Reasoning(text="First", signature="sig+/=1", vendor="anthropic"),
                RedactedReasoning(data="sealed==", vendor="anthropic"),
                Reasoning(text="Second", signature="sig2", vendor="anthropic"),
                "So.",
            ),
            user("On"),
        ),
        {
            **standard(
                [
                    {"role": "user", "content": "Think"},
                    {
                        "role": "assistant",
                        "content": [
                            {
                                "type": "reasoning",
                                "text": "First",
                                "extensions": {"vendor:anthropic": {"signature": "sig+/=1"}},
                            },
                            {
                                "type": "reasoning",
                                "text": "",
                                "extensions": {"vendor:anthropic": {"redacted": "sealed=="}},
                            },
                            {
                                "type": "reasoning",
                                "text": "Second",
                                "extensions": {"vendor:anthropic": {"signature": "sig2"}},
                            },
                            _text("So."),
                        ],
                    },
                    {"role": "user", "content": "On"},
                ]
            ),
            "openai_chat": {
                "messages": [
                    {"role": "user", "content": "Think"},
                    {
                        "role": "assistant",
                        "content": "So.",
                        "reasoning_content": "FirstSecond",
                        "reasoning_details": [
                            {
                                "type": "reasoning.text",
                                "text": "First",
                                "signature": "sig+/=1",
                                "format": "anthropic",
                                "index": 0,
                            },
                            {"type": "reasoning.encrypted", "data": "sealed==", "format": "anthropic", "index": 1},
                            {
                                "type": "reasoning.text",
                                "text": "Second",
                                "signature": "sig2",
                                "format": "anthropic",
                                "index": 2,
                            },
                        ],
                    },
                    {"role": "user", "content": "On"},
                ]
            },
            "anthropic": {
                "messages": [
                    {"role": "user", "content": "Think"},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "First", "signature": "sig+/=1"},
                            {"type": "redacted_thinking", "data": "sealed=="},
                            {"type": "thinking", "thinking": "Second", "signature": "sig2"},
                            _text("So."),
                        ],
                    },
                    {"role": "user", "content": "On"},
                ]
            },
        },
    ),
    options(
        "format: text",
        ask(response_format=ResponseFormat(type="text")),
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "text"}},
    ),
    options(
        "format: json",
        ask(response_format=ResponseFormat(type="json")),
        {"response_format": {"type": "json"}},
        {"response_format": {"type": "json_object"}},
    ),
    options(
        "format: schema",
        ask(
            response_format=ResponseFormat(
                type="json_schema", schema=SCHEMA, name="city", description="A city", strict=True
            )
        ),
        {
            "response_format": {
                "type": "json_schema",
                "schema": SCHEMA,
                "name": "city",
                "description": "A city",
                "strict": True,
            }
        },
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "city", "description": "A city", "schema": SCHEMA, "strict": True},
            }
        },
    ),
    options(
        "format: bare schema",
        ask(response_format=ResponseFormat(type="json_schema", schema=SCHEMA)),
        {"response_format": {"type": "json_schema", "schema": SCHEMA}},
        anthropic={"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    options(
        "sampling",
        ask(max_tokens=77, temperature=0.25, top_p=0.96, stop_sequences=["END", "\n\n"]),
        {"max_tokens": 77, "temperature": 0.25, "top_p": 0.96, "stop_sequences": ["END", "\n\n"]},
        {"max_completion_tokens": 77, "temperature": 0.25, "top_p": 0.96, "stop": ["END", "\n\n"]},
    ),
    options(
        "sampling that all can do",
        ask(max_tokens=77, temperature=1.0, stop_sequences=["END"]),
        {"max_tokens": 77, "temperature": 1.0, "stop_sequences": ["END"]},
        {"max_tokens": 77, "temperature": 1.0, "stop": "END"},
        {"max_tokens": 77, "temperature": 1.0, "stop_sequences": ["END"]},
    ),
    options("hot", ask(temperature=1.5), {"temperature": 1.5}, {"temperature": 1.5}),
    options("top_k", ask(top_k=40, max_tokens=9), {"top_k": 40, "max_tokens": 9}, None, {"top_k": 40, "max_tokens": 9}),
    options(
        "every other knob",
        ask(
            n=2,
            seed=7,
            presence_penalty=0.5,
            frequency_penalty=-0.5,
            logprobs=True,
            top_logprobs=3,
            user="u-1",
        ),
        {
            "n": 2,
            "seed": 7,
            "presence_penalty": 0.5,
            "frequency_penalty": -0.5,
            "logprobs": True,
            "top_logprobs": 3,
            "user": "u-1",
        },
        {
            "n": 2,
            "seed": 7,
            "presence_penalty": 0.5,
            "frequency_penalty": -0.5,
            "logprobs": True,
            "top_logprobs": 3,
            "user": "u-1",
        },
    ),
    options(
        "user",
        ask(user="u-1", max_tokens=9),
        {"user": "u-1", "max_tokens": 9},
        {"user": "u-1", "max_tokens": 9},
        {"metadata": {"user_id": "u-1"}, "max_tokens": 9},
    ),
    options(
        "reasoning effort",
        ask(reasoning=ReasoningConfig(effort="low")),
        {"reasoning": {"effort": "low"}},
        {"reasoning_effort": "low"},
    ),
    options(
        "reasoning budget",
        ask(reasoning=ReasoningConfig(budget_tokens=2000), max_tokens=9000),
        {"reasoning": {"budget_tokens": 2000}, "max_tokens": 9000},
        None,
        {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 9000},
    ),
    options(
        "no reasoning",
        ask(reasoning=ReasoningConfig(enabled=False), max_tokens=9),
        {"reasoning": {"enabled": False}, "max_tokens": 9},
        {"reasoning": {"enabled": False}, "max_tokens": 9},
        {"thinking": {"type": "disabled"}, "max_tokens": 9},
    ),
    Case(
        "vendors' tools",
        ask(
            tools=[TOOL, VendorTool(vendor="anthropic", payload={"type": "web_search_20250305", "name": "web_search"})]
        ),
        {"anthropic": plain(tools=[*_TOOLS["anthropic"], {"type": "web_search_20250305", "name": "web_search"}])},
    ),
    options(
        "metadata and budget",
        ask(metadata={"request_id": "r-1", "tenant": "t"}, budget=Budget(max_cost_usd=0.5, max_tokens=100)),
        {
            "metadata": {"request_id": "r-1", "tenant": "t"},
            "budget": {"max_cost_usd": 0.5, "max_tokens": 100},
        },
        {"metadata": {"request_id": "r-1", "tenant": "t"}, "budget": {"max_cost_usd": 0.5, "max_tokens": 100}},
    ),
]

_OPENAI_CHOICES = {"tool": {"type": "function", "function": {"name": "weather"}}}
_ANTHROPIC_CHOICES = {"required": "any"}

for _mode in ("auto", "none", "required", "tool"):
    for _parallel in (None, True, False):
        _choice = ToolChoice(mode=_mode, name="weather" if _mode == "tool" else None, parallel=_parallel)
        _said: Any = {"type": "tool", "name": "weather"} if _mode == "tool" else _mode
        _flag = {} if _parallel is None else {"parallel_tool_calls": _parallel}
        _bodies = {
            **standard([{"role": "user", "content": "Hi"}], _TOOLS["ours"], tool_choice=_said, **_flag),
            "openai_chat": plain(tools=_TOOLS["openai_chat"], tool_choice=_OPENAI_CHOICES.get(_mode, _mode), **_flag),
        }
        if not (_mode == "none" and _parallel is not None):  # Anthropic's type "none" takes no flag
            _bodies["anthropic"] = plain(
                tools=_TOOLS["anthropic"],
                tool_choice={
                    "type": _ANTHROPIC_CHOICES.get(_mode, _mode),
                    **({"name": "weather"} if _mode == "tool" else {}),
                    **({} if _parallel is None else {"disable_parallel_tool_use": not _parallel}),
                },
            )
        CASES.append(
            Case(f"tool choice: {_mode}, parallel {_parallel}", ask(tools=[TOOL], tool_choice=_choice), _bodies)
        )


for _case in CASES:
    for _name, _column in COLUMNS.items():
        if _case.id in _column.bodies:
            _case.bodies[_name] = dict(_column.bodies[_case.id])


def body_of(case: Case, name: str, *, stream: bool = True) -> bytes:
    """The caller's body."""
    prepared = COLUMNS[name].prepared if name in COLUMNS else None
    if prepared is not None:
        return json.dumps(prepared(dict(case.bodies[name]), stream), ensure_ascii=False).encode()
    body: dict[str, Any] = {"model": "m", **case.bodies[name]}
    if name == "llm_stream":
        body = {"version": "1.0", **body}
    if name == "anthropic":
        body.setdefault("max_tokens", 4096)
    return json.dumps({**body, "stream": stream}, ensure_ascii=False).encode()
