from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Format(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORMAT_UNSPECIFIED: _ClassVar[Format]
    FORMAT_GATEWAY: _ClassVar[Format]
    FORMAT_LLM_STREAM: _ClassVar[Format]
FORMAT_UNSPECIFIED: Format
FORMAT_GATEWAY: Format
FORMAT_LLM_STREAM: Format

class ChatRequest(_message.Message):
    __slots__ = ("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "max_tokens", "temperature", "top_p", "stop_sequences", "reasoning", "budget", "n", "seed", "top_k", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs", "user", "metadata", "extensions", "more", "format", "gateway_json", "llm_stream_json")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    STOP_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_JSON_FIELD_NUMBER: _ClassVar[int]
    LLM_STREAM_JSON_FIELD_NUMBER: _ClassVar[int]
    model: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    tool_choice: ToolChoice
    parallel_tool_calls: bool
    response_format: ResponseFormat
    max_tokens: int
    temperature: float
    top_p: float
    stop_sequences: _containers.RepeatedScalarFieldContainer[str]
    reasoning: ReasoningConfig
    budget: Budget
    n: int
    seed: int
    top_k: int
    presence_penalty: float
    frequency_penalty: float
    logprobs: bool
    top_logprobs: int
    user: str
    metadata: _struct_pb2.Struct
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    format: Format
    gateway_json: str
    llm_stream_json: str
    def __init__(self, model: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ..., tool_choice: _Optional[_Union[ToolChoice, _Mapping]] = ..., parallel_tool_calls: _Optional[bool] = ..., response_format: _Optional[_Union[ResponseFormat, _Mapping]] = ..., max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., stop_sequences: _Optional[_Iterable[str]] = ..., reasoning: _Optional[_Union[ReasoningConfig, _Mapping]] = ..., budget: _Optional[_Union[Budget, _Mapping]] = ..., n: _Optional[int] = ..., seed: _Optional[int] = ..., top_k: _Optional[int] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., logprobs: _Optional[bool] = ..., top_logprobs: _Optional[int] = ..., user: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., format: _Optional[_Union[Format, str]] = ..., gateway_json: _Optional[str] = ..., llm_stream_json: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("role", "content", "parts", "name", "tool_call_id", "tool_calls", "extensions", "more")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    name: str
    tool_call_id: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[MessageToolCall]
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., name: _Optional[str] = ..., tool_call_id: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[MessageToolCall, _Mapping]]] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class MessageToolCall(_message.Message):
    __slots__ = ("id", "name", "arguments", "complete", "extensions", "more")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    arguments: str
    complete: bool
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ..., complete: _Optional[bool] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("text", "image", "document", "audio", "reasoning", "refusal", "tool_call", "opaque")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    OPAQUE_FIELD_NUMBER: _ClassVar[int]
    text: TextPart
    image: MediaPart
    document: MediaPart
    audio: MediaPart
    reasoning: ReasoningPart
    refusal: TextPart
    tool_call: MessageToolCall
    opaque: OpaquePart
    def __init__(self, text: _Optional[_Union[TextPart, _Mapping]] = ..., image: _Optional[_Union[MediaPart, _Mapping]] = ..., document: _Optional[_Union[MediaPart, _Mapping]] = ..., audio: _Optional[_Union[MediaPart, _Mapping]] = ..., reasoning: _Optional[_Union[ReasoningPart, _Mapping]] = ..., refusal: _Optional[_Union[TextPart, _Mapping]] = ..., tool_call: _Optional[_Union[MessageToolCall, _Mapping]] = ..., opaque: _Optional[_Union[OpaquePart, _Mapping]] = ...) -> None: ...

class TextPart(_message.Message):
    __slots__ = ("text", "extensions", "more")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    text: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, text: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class MediaPart(_message.Message):
    __slots__ = ("media_type", "data", "url", "file_id", "title", "detail", "transcript", "extensions", "more")
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    media_type: str
    data: bytes
    url: str
    file_id: str
    title: str
    detail: str
    transcript: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, media_type: _Optional[str] = ..., data: _Optional[bytes] = ..., url: _Optional[str] = ..., file_id: _Optional[str] = ..., title: _Optional[str] = ..., detail: _Optional[str] = ..., transcript: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ReasoningPart(_message.Message):
    __slots__ = ("text", "id", "vendor", "extensions", "more")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    text: str
    id: str
    vendor: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, text: _Optional[str] = ..., id: _Optional[str] = ..., vendor: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class OpaquePart(_message.Message):
    __slots__ = ("role", "extensions", "more")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    role: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, role: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("name", "description", "parameters", "strict", "extensions", "more")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters: _struct_pb2.Struct
    strict: bool
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., strict: _Optional[bool] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ToolChoice(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ResponseFormat(_message.Message):
    __slots__ = ("type", "schema", "name", "description", "strict")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    type: str
    schema: _struct_pb2.Struct
    name: str
    description: str
    strict: bool
    def __init__(self, type: _Optional[str] = ..., schema: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., strict: _Optional[bool] = ...) -> None: ...

class ReasoningConfig(_message.Message):
    __slots__ = ("enabled", "effort", "budget_tokens")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    EFFORT_FIELD_NUMBER: _ClassVar[int]
    BUDGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    effort: str
    budget_tokens: int
    def __init__(self, enabled: _Optional[bool] = ..., effort: _Optional[str] = ..., budget_tokens: _Optional[int] = ...) -> None: ...

class Budget(_message.Message):
    __slots__ = ("max_cost_usd", "max_tokens")
    MAX_COST_USD_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    max_cost_usd: float
    max_tokens: int
    def __init__(self, max_cost_usd: _Optional[float] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class ChatEvent(_message.Message):
    __slots__ = ("seq", "start", "delta", "tool_call", "reasoning", "progress", "usage", "error", "done", "other", "llm_stream")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    LLM_STREAM_FIELD_NUMBER: _ClassVar[int]
    seq: int
    start: Start
    delta: Delta
    tool_call: ToolCall
    reasoning: Delta
    progress: Progress
    usage: Usage
    error: Error
    done: Done
    other: OtherEvent
    llm_stream: LlmStreamEvent
    def __init__(self, seq: _Optional[int] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., delta: _Optional[_Union[Delta, _Mapping]] = ..., tool_call: _Optional[_Union[ToolCall, _Mapping]] = ..., reasoning: _Optional[_Union[Delta, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., other: _Optional[_Union[OtherEvent, _Mapping]] = ..., llm_stream: _Optional[_Union[LlmStreamEvent, _Mapping]] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("model", "provider", "request_id", "id", "created", "extensions", "more")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    model: str
    provider: str
    request_id: str
    id: str
    created: int
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, model: _Optional[str] = ..., provider: _Optional[str] = ..., request_id: _Optional[str] = ..., id: _Optional[str] = ..., created: _Optional[int] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("content", "choice", "refusal", "block", "parallel", "part", "media", "append", "extensions", "more")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    content: str
    choice: int
    refusal: bool
    block: int
    parallel: bool
    part: BlockInfo
    media: MediaPiece
    append: _struct_pb2.Struct
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, content: _Optional[str] = ..., choice: _Optional[int] = ..., refusal: _Optional[bool] = ..., block: _Optional[int] = ..., parallel: _Optional[bool] = ..., part: _Optional[_Union[BlockInfo, _Mapping]] = ..., media: _Optional[_Union[MediaPiece, _Mapping]] = ..., append: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class BlockInfo(_message.Message):
    __slots__ = ("type", "id", "vendor", "media_type", "role", "more")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    type: str
    id: str
    vendor: str
    media_type: str
    role: str
    more: _struct_pb2.Struct
    def __init__(self, type: _Optional[str] = ..., id: _Optional[str] = ..., vendor: _Optional[str] = ..., media_type: _Optional[str] = ..., role: _Optional[str] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class MediaPiece(_message.Message):
    __slots__ = ("data", "transcript", "url", "more")
    DATA_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    data: str
    transcript: str
    url: str
    more: _struct_pb2.Struct
    def __init__(self, data: _Optional[str] = ..., transcript: _Optional[str] = ..., url: _Optional[str] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("id", "name", "arguments_delta", "arguments", "complete", "choice", "parallel", "extensions", "more")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_DELTA_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    arguments_delta: str
    arguments: str
    complete: bool
    choice: int
    parallel: bool
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., arguments_delta: _Optional[str] = ..., arguments: _Optional[str] = ..., complete: _Optional[bool] = ..., choice: _Optional[int] = ..., parallel: _Optional[bool] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("message", "percent", "extensions", "more")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    message: str
    percent: float
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, message: _Optional[str] = ..., percent: _Optional[float] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "cost_usd", "estimated", "extensions", "more")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_WRITE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: float
    estimated: bool
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., total_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., cache_write_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., cost_usd: _Optional[float] = ..., estimated: _Optional[bool] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "type", "provider", "retryable", "param", "retry_after", "details", "extensions", "more")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    type: str
    provider: str
    retryable: bool
    param: str
    retry_after: float
    details: _struct_pb2.Value
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., type: _Optional[str] = ..., provider: _Optional[str] = ..., retryable: _Optional[bool] = ..., param: _Optional[str] = ..., retry_after: _Optional[float] = ..., details: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("usage", "routing", "finish_reason", "provider_finish_reason", "stop_sequence", "choices", "lost", "extensions", "more")
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    usage: Usage
    routing: Routing
    finish_reason: str
    provider_finish_reason: str
    stop_sequence: str
    choices: _containers.RepeatedCompositeFieldContainer[Finish]
    lost: _containers.RepeatedScalarFieldContainer[str]
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, usage: _Optional[_Union[Usage, _Mapping]] = ..., routing: _Optional[_Union[Routing, _Mapping]] = ..., finish_reason: _Optional[str] = ..., provider_finish_reason: _Optional[str] = ..., stop_sequence: _Optional[str] = ..., choices: _Optional[_Iterable[_Union[Finish, _Mapping]]] = ..., lost: _Optional[_Iterable[str]] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("index", "finish_reason", "provider_finish_reason", "stop_sequence", "extensions", "more")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    index: int
    finish_reason: str
    provider_finish_reason: str
    stop_sequence: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, index: _Optional[int] = ..., finish_reason: _Optional[str] = ..., provider_finish_reason: _Optional[str] = ..., stop_sequence: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Routing(_message.Message):
    __slots__ = ("strategy", "selected_provider", "selected_model", "attempts", "failovers", "cache", "tried", "more")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    SELECTED_PROVIDER_FIELD_NUMBER: _ClassVar[int]
    SELECTED_MODEL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILOVERS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    TRIED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    strategy: str
    selected_provider: str
    selected_model: str
    attempts: int
    failovers: int
    cache: str
    tried: _containers.RepeatedCompositeFieldContainer[Tried]
    more: _struct_pb2.Struct
    def __init__(self, strategy: _Optional[str] = ..., selected_provider: _Optional[str] = ..., selected_model: _Optional[str] = ..., attempts: _Optional[int] = ..., failovers: _Optional[int] = ..., cache: _Optional[str] = ..., tried: _Optional[_Iterable[_Union[Tried, _Mapping]]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Tried(_message.Message):
    __slots__ = ("provider", "model", "code", "ms", "more")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    provider: str
    model: str
    code: str
    ms: float
    more: _struct_pb2.Struct
    def __init__(self, provider: _Optional[str] = ..., model: _Optional[str] = ..., code: _Optional[str] = ..., ms: _Optional[float] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class OtherEvent(_message.Message):
    __slots__ = ("type", "fields")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    type: str
    fields: _struct_pb2.Struct
    def __init__(self, type: _Optional[str] = ..., fields: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class LlmStreamEvent(_message.Message):
    __slots__ = ("v", "stream_start", "content_delta", "content_stop", "tool_call", "usage", "error", "stream_end", "other")
    V_FIELD_NUMBER: _ClassVar[int]
    STREAM_START_FIELD_NUMBER: _ClassVar[int]
    CONTENT_DELTA_FIELD_NUMBER: _ClassVar[int]
    CONTENT_STOP_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STREAM_END_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    v: str
    stream_start: StreamStart
    content_delta: ContentDelta
    content_stop: ContentStop
    tool_call: StreamToolCall
    usage: StreamUsage
    error: StreamError
    stream_end: StreamEnd
    other: OtherEvent
    def __init__(self, v: _Optional[str] = ..., stream_start: _Optional[_Union[StreamStart, _Mapping]] = ..., content_delta: _Optional[_Union[ContentDelta, _Mapping]] = ..., content_stop: _Optional[_Union[ContentStop, _Mapping]] = ..., tool_call: _Optional[_Union[StreamToolCall, _Mapping]] = ..., usage: _Optional[_Union[StreamUsage, _Mapping]] = ..., error: _Optional[_Union[StreamError, _Mapping]] = ..., stream_end: _Optional[_Union[StreamEnd, _Mapping]] = ..., other: _Optional[_Union[OtherEvent, _Mapping]] = ...) -> None: ...

class StreamStart(_message.Message):
    __slots__ = ("model", "created", "request_id", "extensions", "more")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    model: str
    created: int
    request_id: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, model: _Optional[str] = ..., created: _Optional[int] = ..., request_id: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ContentDelta(_message.Message):
    __slots__ = ("index", "role", "delta", "extensions", "more")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    index: int
    role: str
    delta: TextDelta
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, index: _Optional[int] = ..., role: _Optional[str] = ..., delta: _Optional[_Union[TextDelta, _Mapping]] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class TextDelta(_message.Message):
    __slots__ = ("text", "reasoning", "more")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    text: str
    reasoning: str
    more: _struct_pb2.Struct
    def __init__(self, text: _Optional[str] = ..., reasoning: _Optional[str] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ContentStop(_message.Message):
    __slots__ = ("index", "stop_reason", "extensions", "more")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    index: int
    stop_reason: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, index: _Optional[int] = ..., stop_reason: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class StreamToolCall(_message.Message):
    __slots__ = ("index", "id", "name", "arguments", "extensions", "more")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    index: int
    id: str
    name: str
    arguments: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, index: _Optional[int] = ..., id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class StreamUsage(_message.Message):
    __slots__ = ("input_tokens", "output_tokens", "extensions", "more")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    output_tokens: int
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class StreamError(_message.Message):
    __slots__ = ("code", "message", "extensions", "more")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class StreamEnd(_message.Message):
    __slots__ = ("request_id", "extensions", "more")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, request_id: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ChatResponse(_message.Message):
    __slots__ = ("id", "model", "provider", "created", "choices", "usage", "routing", "lost", "extensions", "more")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    provider: str
    created: int
    choices: _containers.RepeatedCompositeFieldContainer[Choice]
    usage: Usage
    routing: Routing
    lost: _containers.RepeatedScalarFieldContainer[str]
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., created: _Optional[int] = ..., choices: _Optional[_Iterable[_Union[Choice, _Mapping]]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., routing: _Optional[_Union[Routing, _Mapping]] = ..., lost: _Optional[_Iterable[str]] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Choice(_message.Message):
    __slots__ = ("index", "message", "finish_reason", "provider_finish_reason", "stop_sequence", "extensions", "more")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    index: int
    message: Message
    finish_reason: str
    provider_finish_reason: str
    stop_sequence: str
    extensions: _struct_pb2.Struct
    more: _struct_pb2.Struct
    def __init__(self, index: _Optional[int] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., finish_reason: _Optional[str] = ..., provider_finish_reason: _Optional[str] = ..., stop_sequence: _Optional[str] = ..., extensions: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., more: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("id", "owned_by")
    ID_FIELD_NUMBER: _ClassVar[int]
    OWNED_BY_FIELD_NUMBER: _ClassVar[int]
    id: str
    owned_by: str
    def __init__(self, id: _Optional[str] = ..., owned_by: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    def __init__(self, cancelled: _Optional[bool] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...
