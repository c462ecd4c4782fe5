"""The configuration as types: what every key is called, means, defaults to and may be.

Rule: this is the only place that names keys. The reader, the published JSON Schema and the reference in
docs/configuration.md are all derived from these Structs. `Meta(extra={"kind": ...})` names how a value is written in
the file (see `kinds`); `extra={"internal": True}` marks a field that the file cannot set. The price is that plain
Python types carry long annotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from headrace.config.credentials import Secret
from headrace.config.errors import Problem
from headrace.config.presets import PRESETS
from headrace.formats import PROVIDED

DEFAULT_VENDORS = {name: fmt.vendor for name, fmt in PROVIDED.items()}
"""The vendor of a provider that names none, by its format."""

REPLAY = "replay"
"""The reserved name of the embedded replay provider."""

KIB, MIB = 1024, 1024 * 1024
DAY = 86_400.0

Seconds = Annotated[float, Meta(gt=0, le=DAY, extra={"kind": "duration"})]
Bytes = Annotated[int, Meta(ge=1024, le=1024 * MIB, extra={"kind": "size"})]
if TYPE_CHECKING:
    FormatName = str
    PresetName = str
else:
    FormatName = Literal[tuple(PROVIDED)]
    PresetName = Literal[tuple(PRESETS)]
ProviderName = Annotated[str, Meta(extra={"kind": "provider_name"})]
ModelName = Annotated[str, Meta(extra={"kind": "model"})]
FileName = Annotated[str, Meta(extra={"kind": "file"})]


class Grpc(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where gRPC is served (docs/grpc.md; it needs the extra `grpc`)."""

    host: Annotated[str, Meta(description="Address to listen on.", extra={"kind": "host"})] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="TCP port to listen on. 0 takes any free port.")] = 50051
    cert_file: Annotated[
        FileName | None,
        Meta(
            description="TLS certificate chain (PEM), relative to the configuration file. Without it there is no TLS."
        ),
    ] = None
    key_file: Annotated[FileName | None, Meta(description="The certificate's private key (PEM).")] = None
    client_ca_file: Annotated[
        FileName | None,
        Meta(description="CA certificates (PEM), one of which must have signed every caller's certificate."),
    ] = None


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where Headrace listens, and how it treats its callers."""

    host: Annotated[
        str,
        Meta(description="Address to listen on. `0.0.0.0` or `::` is every interface.", extra={"kind": "host"}),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="TCP port to listen on. 0 takes any free port.")] = 8080
    workers: Annotated[
        int,
        Meta(ge=1, le=256, description="Processes that serve the port; one for each core is the most that is useful."),
    ] = 1
    shutdown_grace: Annotated[
        Seconds,
        Meta(description="After SIGTERM, streams in flight may go on for so long; then they end with an error event."),
    ] = 30.0
    open: Annotated[
        bool,
        Meta(
            description="Serve anybody who can reach the address, without keys. Not needed where it is a loopback address; "
            "anywhere else Headrace does not start without either keys or this."
        ),
    ] = False
    allowed_origins: Annotated[
        list[Annotated[str, Meta(extra={"kind": "origin"})]],
        Meta(
            description="Origins of web pages that may open a WebSocket, or use the SignalR hub, Connect or gRPC-Web, where no "
            "keys are configured, beside pages of the gateway's own host; `*` is any. Without it any page that a user visits "
            "could use a gateway on their machine."
        ),
    ] = field(default_factory=list)
    keepalive_interval: Annotated[
        Seconds,
        Meta(
            description="A stream on which nothing was sent for this long gets an SSE comment. When nothing has come "
            "from the provider yet, the response headers go out with it."
        ),
    ] = 15.0
    grpc: Annotated[Grpc | None, Meta(description="gRPC, on a port of its own. Without it there is none.")] = None
    access_log: Annotated[
        bool,
        Meta(
            description="Log one line a request when it has ended: its id, provider, outcome, times, counts, and what "
            "the caller's format could not carry. Never headers or bodies."
        ),
    ] = True


class Retry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a failed request is sent again, before anything of an answer was delivered."""

    attempts: Annotated[
        int,
        Meta(ge=1, le=10, description="On one candidate, the first one included; 1 switches retries off."),
    ] = 3
    backoff: Annotated[
        Seconds,
        Meta(
            description="The longest wait before the second attempt; it doubles with each one. The real wait is any part "
            "of it, by chance, so that callers who failed together come back apart. A provider's `Retry-After` wins."
        ),
    ] = 0.2
    backoff_max: Annotated[
        Seconds,
        Meta(
            description="The longest wait between two attempts. Where a provider asks for a longer one, another candidate "
            "is asked first."
        ),
    ] = 4.0


class Breaker(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a model of a provider is left alone for a while, because too much failed there."""

    enabled: Annotated[bool, Meta(description="Whether there are circuit breakers at all.")] = True
    error_threshold: Annotated[
        float, Meta(ge=0.01, le=1, description="The part of the requests in the window that has to fail.")
    ] = 0.5
    window: Annotated[Seconds, Meta(description="How far back requests count.")] = 30.0
    min_requests: Annotated[
        int, Meta(ge=1, le=1_000_000, description="So many requests have to be in the window, at least.")
    ] = 20
    open_for: Annotated[Seconds, Meta(description="How long nothing is sent there.")] = 15.0
    trials: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="So many requests are let through after that; when they succeed all are, and one failure closes "
            "the door again.",
        ),
    ] = 5


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long Headrace waits. All are longer than zero and at most a day."""

    connect: Annotated[Seconds, Meta(description="To open a connection to a provider, TLS included.")] = 2.0
    first_token: Annotated[
        Seconds, Meta(description="From sending the request to the first event of the provider's stream.")
    ] = 20.0
    request: Annotated[Seconds, Meta(description="A whole request that is not streamed.")] = 120.0
    deadline: Annotated[
        Seconds,
        Meta(
            description="All attempts at a request together, until the first output of a stream or the whole of a body. "
            "A route may set its own."
        ),
    ] = 120.0
    idle_stream: Annotated[Seconds, Meta(description="The largest gap between two events of a stream.")] = 30.0
    slow_consumer: Annotated[
        Seconds,
        Meta(description="A caller that makes no room in its buffer for this long gets `consumer_too_slow`."),
    ] = 30.0
    request_body: Annotated[Seconds, Meta(description="For a caller to send its whole request body.")] = 30.0
    request_head: Annotated[Seconds, Meta(description="For a caller to send its request line and headers.")] = 10.0


PROVIDER_TIMEOUTS = ("connect", "first_token", "request", "idle_stream", "slow_consumer")
"""The timeouts that a provider may set for itself; the others are over before a provider is chosen."""


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on what Headrace accepts and holds in memory."""

    body_bytes: Annotated[
        Bytes,
        Meta(
            description="A caller's request body (beyond it: 413), and a provider's answer where it has to be held whole."
        ),
    ] = 32 * MIB
    head_bytes: Annotated[
        Bytes, Meta(description="Request line and headers of a request, status line and headers of a response.")
    ] = 64 * KIB
    frame_bytes: Annotated[
        Bytes, Meta(description="One frame of a stream (an SSE event, an NDJSON line, an array element).")
    ] = 8 * MIB
    stream_buffer_bytes: Annotated[
        Bytes,
        Meta(
            description="What waits for one slow caller. When it is full, reading from the provider pauses until there "
            "is room."
        ),
    ] = 256 * KIB


class Aws(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests to AWS are signed (Signature Version 4). Needs the extra `aws`."""

    region: Annotated[
        str, Meta(description="The region of `base_url`: `us-east-1`, for example.", extra={"kind": "word"})
    ]
    profile: Annotated[
        str | None,
        Meta(
            description="The profile of AWS's shared files to take the credentials from. Without it, and without keys here, "
            "they come from the usual variables, or from where AWS's own tools find them: shared files, container, instance.",
            extra={"kind": "text"},
        ),
    ] = None
    access_key_id: Annotated[
        Secret | None,
        Meta(description="The access key, as one reference: `${BEDROCK_ACCESS_KEY}`.", extra={"kind": "secret"}),
    ] = None
    secret_access_key: Annotated[
        Secret | None, Meta(description="Its secret, as one reference.", extra={"kind": "secret"})
    ] = None
    session_token: Annotated[
        Secret | None, Meta(description="The token of temporary keys, as one reference.", extra={"kind": "secret"})
    ] = None


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service that answers for models: where it is, which format it speaks, how to authenticate."""

    format: Annotated[FormatName, Meta(description="The format that the provider speaks.", extra={"unless": "preset"})]
    base_url: Annotated[
        str,
        Meta(
            description="Address of the provider, `http://` or `https://`. The format's path is appended to it "
            "(`openai_chat`: `/chat/completions`, `anthropic`: `/v1/messages`, `ollama`: `/api/chat`), so an OpenAI address "
            "ends in `/v1`, and one of Anthropic, Ollama or Azure (`https://NAME.openai.azure.com`) does not. A slash at the "
            "end makes no difference.",
            extra={"kind": "base_url", "unless": "preset"},
        ),
    ]
    preset: Annotated[
        PresetName | None,
        Meta(
            description="A vendor or model server that is known: format, address, variable of the key, names of models and "
            "quirks come from the [table of presets](#presets), but for what is said here."
        ),
    ] = None
    vendor: Annotated[
        str,
        Meta(
            description="Whose dialect it is: the NAME in a request's `extensions` under `vendor:NAME`. Default by "
            "format: " + ", ".join(f"`{name}`: `{vendor}`" for name, vendor in DEFAULT_VENDORS.items()) + ".",
            extra={"kind": "word"},
        ),
    ] = ""
    api_key: Annotated[
        Secret | None,
        Meta(
            description="The key, as one reference: `${OPENAI_API_KEY}`. The key itself is refused. At most one of "
            "`api_key`, `api_key_env` and `api_key_file`; none for a provider without authentication.",
            extra={"kind": "secret"},
        ),
    ] = None
    api_key_env: Annotated[
        str | None,
        Meta(description="Name of the environment variable that holds the key.", extra={"kind": "variable"}),
    ] = None
    api_key_file: Annotated[
        FileName | None,
        Meta(
            description="File that holds the key and nothing else; relative to the configuration file. Read anew "
            "whenever the key is needed, so it can be changed without a restart."
        ),
    ] = None
    aws: Annotated[
        Aws | None,
        Meta(
            description="Sign requests as AWS wants it, instead of sending a key (`bedrock`, `bedrock_invoke`). With an API "
            "key of Bedrock's, give that as `api_key` and leave this out."
        ),
    ] = None
    headers: Annotated[
        dict[
            Annotated[str, Meta(extra={"kind": "header_name"})],
            Annotated[str, Meta(extra={"kind": "header_value"})],
        ],
        Meta(
            description="Headers to send with every request. The value of one that usually carries a secret "
            "(`authorization`, `cookie`, names with `key`, `token`, `auth`, `secret`, `password`) has to come from a "
            "reference: `Bearer ${TOKEN}`."
        ),
    ] = field(default_factory=dict)
    models: Annotated[
        list[Annotated[str, Meta(extra={"kind": "claim"})]],
        Meta(
            description="Models that a caller may name without the provider. `*` at the end stands for any rest: "
            "`llama-*`."
        ),
    ] = field(default_factory=list)
    timeouts: Annotated[
        Timeouts | None,
        Meta(
            description="Timeouts of this provider where they differ from the `timeouts` of all: "
            + ", ".join(f"`{name}`" for name in PROVIDER_TIMEOUTS)
            + ".",
            extra={"keys": PROVIDER_TIMEOUTS},
        ),
    ] = None
    proxy: Annotated[
        str | None,
        Meta(
            description="HTTP proxy to reach the provider through, before HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the "
            "environment. Credentials in it have to come from a reference: `http://${USER}:${PASSWORD}@proxy:3128`.",
            extra={"kind": "proxy"},
        ),
    ] = None
    ca_file: Annotated[
        FileName | None,
        Meta(
            description="PEM file of the certificate authorities to trust instead of the system's; relative to the "
            "configuration file."
        ),
    ] = None
    verify: Annotated[bool, Meta(description="Check the provider's TLS certificate.")] = True
    path: Annotated[
        str | None,
        Meta(
            description="Path to append to `base_url` instead of the format's own; may hold a query "
            "(`?api-version=...`).",
            extra={"kind": "url_path"},
        ),
    ] = None
    quirks: Annotated[
        dict[Annotated[str, Meta(extra={"kind": "word"})], Annotated[bool | str, Meta(extra={"kind": "flag"})]],
        Meta(
            description="Flags of the format for a provider that departs from it, `done_marker: false` for example. "
            "The format decides which there are."
        ),
    ] = field(default_factory=dict)
    malformed: Annotated[
        Literal["fail", "skip"],
        Meta(
            description="What to do with a frame of the provider's stream that its format does not allow (broken JSON, "
            "for instance): end the stream with an error, or leave the frame out, count it in the log record and go on."
        ),
    ] = "fail"
    pings_count: Annotated[
        bool,
        Meta(
            description="Whether the provider's pings and comments count as progress for `timeouts.idle_stream`. By "
            "default they do not: a provider can ping for hours and say nothing."
        ),
    ] = False
    embedded: Annotated[
        bool,
        Meta(
            description="Served by this process itself, at an address that is known only when it has started "
            "(`base_url` is empty until then).",
            extra={"internal": True},
        ),
    ] = False

    def __post_init__(self) -> None:
        if not self.vendor:
            msgspec.structs.force_setattr(self, "vendor", DEFAULT_VENDORS[self.format])

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The fields as they may be shown: header values, proxy credentials and queries are blotted out."""
        shown: list[tuple[str, Any]] = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name == "headers":
                value = dict.fromkeys(value, "***")
            elif name == "proxy" and value and "@" in value:
                parts = urlsplit(value)
                value = parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]).geturl()
            elif name == "path" and value and "?" in value:
                value = value.partition("?")[0] + "?***"
            shown.append((name, value))
        return shown

    def __repr__(self) -> str:
        return f"Provider({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class Candidate(Struct, frozen=True, forbid_unknown_fields=True):
    """One model of one provider. May be written as one string, `provider/model`."""

    provider: Annotated[ProviderName, Meta(description="Name of the provider.")]
    model: Annotated[ModelName, Meta(description="Name of the model, as the provider knows it.")]
    weight: Annotated[
        float,
        Meta(
            ge=0,
            le=1_000_000,
            description="Its part of the requests, with `strategy: weighted`. 0: only when all others have failed.",
        ),
    ] = 1.0
    same_as: Annotated[
        str,
        Meta(
            description="The model that this is a deployment of, where its name differs: candidates with the same word "
            "here (or the same `model`) stand in for one another.",
            extra={"kind": "model"},
        ),
    ] = ""
    parameters: Annotated[
        dict[Annotated[str, Meta(extra={"kind": "text"})], Any],
        Meta(description="Fields to set in the request to this candidate, in the words of its provider's format."),
    ] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Which model it is, whoever serves it."""
        return self.same_as or self.model


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name that callers use for a model, and who answers to it."""

    candidates: Annotated[
        list[Annotated[Candidate, Meta(extra={"kind": "candidate"})]],
        Meta(
            min_length=1,
            description='Who may answer, in order of preference, each as "provider/model" or as '
            "`{provider: ..., model: ...}` with the keys of a candidate.",
        ),
    ]
    strategy: Annotated[
        Literal["ordered", "weighted"],
        Meta(description="Ask the first one first, or draw by the candidates' weights."),
    ] = "ordered"
    cross_model: Annotated[
        bool,
        Meta(
            description="Whether another model may take over where one has failed. Otherwise only deployments of the same "
            "model do (see `same_as`)."
        ),
    ] = False
    max_failovers: Annotated[
        int, Meta(ge=0, le=100, description="How often the candidate may be changed for one request.")
    ] = 2
    hedge_after: Annotated[
        Seconds | None,
        Meta(
            description="Send a stream's request to the next candidate too, when the first has shown nothing for so long "
            "(0.8 s, say). The first to answer wins, the other is cancelled, and paid for as far as it came. Off unless "
            "set."
        ),
    ] = None
    deadline: Annotated[
        Seconds | None, Meta(description="Instead of `timeouts.deadline`, for requests to this route.")
    ] = None
    usage_interval: Annotated[
        Seconds | None,
        Meta(description="Send streams an interim usage event so often, in formats that have one. None unless set."),
    ] = None
    retry: Annotated[Retry | None, Meta(description="Instead of `retry`, for requests to this route.")] = None


_Dollars = Annotated[float, Meta(ge=0, le=1_000_000)]


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model's tokens cost, in USD for a million."""

    input: Annotated[_Dollars, Meta(description="Input that no cache had to do with.")]
    output: Annotated[_Dollars, Meta(description="Output.")]
    cached: Annotated[
        _Dollars | None,
        Meta(description="Input that came from the provider's cache; default `input`."),
    ] = None
    cache_write: Annotated[
        _Dollars | None, Meta(description="Input that was written to the cache; default `input`.")
    ] = None
    reasoning: Annotated[
        _Dollars | None, Meta(description="Reasoning, where it has its own price; default `output`.")
    ] = None


class Redis(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Redis server that several processes and machines share: limits, budgets, circuits, idempotency."""

    url: Annotated[
        str,
        Meta(
            description="`redis://`, `rediss://` (TLS) or `unix://`; a password comes from a reference.",
            extra={"kind": "redis_url"},
        ),
    ]
    prefix: Annotated[str, Meta(description="What all keys begin with.", extra={"kind": "text"})] = "headrace:"
    budgets_when_down: Annotated[
        Literal["refuse", "allow"],
        Meta(
            description="What becomes of requests under keys with a budget of costs while Redis cannot be reached. The other "
            "limits are then kept by each process for itself."
        ),
    ] = "refuse"


class Usage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the usage record of each request goes (docs/usage.md)."""

    enabled: Annotated[bool, Meta(description="Whether records are written at all.")] = True
    ledger: Annotated[
        str | None,
        Meta(
            description="`sqlite:///FILE` or `postgresql://USER:${PASSWORD}@HOST/DATABASE`. Default: `usage.db` in the folder.",
            extra={"kind": "ledger_url"},
        ),
    ] = None
    folder: Annotated[
        FileName | None,
        Meta(
            description="Where records wait until every sink has them, relative to the configuration file. Default: "
            "`$XDG_STATE_HOME/headrace`, or `~/.local/state/headrace`."
        ),
    ] = None
    file: Annotated[FileName | None, Meta(description="A file that gets every record as a line of JSON, too.")] = None
    redis_stream: Annotated[
        str | None,
        Meta(description="A stream of the Redis server that gets every record, too.", extra={"kind": "text"}),
    ] = None


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of Headrace: providers, routes, limits, timeouts."""

    server: Annotated[Server, Meta(description="Where Headrace listens.")] = Server()
    providers: Annotated[
        dict[ProviderName, Provider],
        Meta(
            description="The providers, by the name that callers write before the slash in `provider/model`. Letters, "
            f"digits, `.`, `_` and `-`; `{REPLAY}` is taken by the embedded provider."
        ),
    ] = field(default_factory=dict)
    routes: Annotated[
        dict[Annotated[str, Meta(extra={"kind": "model"})], Route],
        Meta(description="The routes, by the model name that callers use."),
    ] = field(default_factory=dict)
    default_route: Annotated[
        str | None,
        Meta(
            description="Route for requests that name no model. Without it they are refused.", extra={"kind": "model"}
        ),
    ] = None
    keys_file: Annotated[
        FileName | None,
        Meta(
            description="The file of callers' keys that `headrace keys create` makes, relative to the configuration file. It "
            "is read anew when it changes. Without it callers need no key."
        ),
    ] = None
    redis: Annotated[Redis | None, Meta(description="What several processes share. Without it each has its own.")] = (
        None
    )
    usage: Annotated[Usage, Meta(description="Records of what was used.")] = Usage()
    prices: Annotated[
        dict[Annotated[str, Meta(extra={"kind": "model"})], Price],
        Meta(
            description="Prices of models that are not known, or not yours: by `provider/model`, or by a model's name "
            "alone for every provider."
        ),
    ] = field(default_factory=dict)
    retry: Annotated[Retry, Meta(description="Sending a failed request again.")] = Retry()
    breaker: Annotated[Breaker, Meta(description="Leaving a provider alone that fails.")] = Breaker()
    limits: Annotated[Limits, Meta(description="Bounds on sizes.")] = Limits()
    timeouts: Annotated[Timeouts, Meta(description="How long to wait.")] = Timeouts()
    environment_providers: Annotated[
        bool,
        Meta(
            description="Add the providers whose usual variables are in the environment, unless a provider of that "
            "name is in the file."
        ),
    ] = True
    warnings: Annotated[
        tuple[Problem, ...],
        Meta(description="What may be a mistake and does not stop the start.", extra={"internal": True}),
    ] = ()
