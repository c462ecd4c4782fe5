"""Presets: what is known of each vendor and model server, as one table.

A provider of the file names one (`preset: groq`), and what it says itself goes before it; and each is a provider of its
own where its key or its address is in the environment (environment.py). The rule: only what a vendor publishes, or its
recorded streams show, is a quirk here; a preset claims only names of models that nobody else serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

KEY_SOURCES = ("api_key", "api_key_env", "api_key_file")
"""The keys of a provider that say where its key is."""


def as_it_is(url: str) -> str:
    return url


def ollama_address(host: str) -> str:
    """OLLAMA_HOST as Ollama's own clients take it: scheme and port may be missing, and the address to listen on of a
    server on this machine stands for it."""
    if not host:
        return host
    scheme, separator, rest = host.partition("://")
    if not separator:
        scheme, rest = "http", host
    authority, slash, path = rest.partition("/")
    name, colon, port = authority.rpartition(":")
    if not colon or "]" in port:  # an IPv6 address without a port
        name, port = authority, {"http": "11434", "https": "443"}.get(scheme, "")
    if name in ("", "0.0.0.0", "[::]"):  # noqa: S104  # compared, not bound
        name = "127.0.0.1"
    return f"{scheme}://{name}:{port}{slash}{path}" if port else f"{scheme}://{name}{slash}{path}"


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """`local`: a server of one's own, which needs no key. `claims` are its model names, as `models` of a provider."""

    key_variable: str
    url_variable: str
    base_url: str = ""
    """"": its address is one's own, and has to be given."""
    format: str = "openai_chat"
    vendor: str = ""
    """"": the preset's name."""
    claims: tuple[str, ...] = ()
    quirks: Mapping[str, Any] = {}
    quirk_variables: Mapping[str, str] = {}
    """Quirks that come from the environment, by the names of their variables."""
    local: bool = False
    address: Callable[[str], str] = as_it_is
    """Makes a URL of the address's variable."""


_THINKS = {"think_tags": True}
"""Servers of open models, whose reasoning stands in the text unless they were told how to find it."""
_SERVER = {"think_tags": True, "top_k": True}
_COMPLETION_TOKENS = {"max_tokens_field": "max_completion_tokens"}

PRESETS: dict[str, Preset] = {
    "openai": Preset(
        key_variable="OPENAI_API_KEY",
        url_variable="OPENAI_BASE_URL",
        base_url="https://api.openai.com/v1",
        claims=("gpt-*", "o1*", "o3*", "o4*", "chatgpt-*"),
    ),
    "anthropic": Preset(
        format="anthropic",
        key_variable="ANTHROPIC_API_KEY",
        url_variable="ANTHROPIC_BASE_URL",
        base_url="https://api.anthropic.com",
        claims=("claude-*",),
    ),
    "google": Preset(
        format="gemini",
        key_variable="GEMINI_API_KEY",
        url_variable="GEMINI_BASE_URL",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        claims=("gemini-*",),
    ),
    "mistral": Preset(
        format="mistral",
        key_variable="MISTRAL_API_KEY",
        url_variable="MISTRAL_BASE_URL",
        base_url="https://api.mistral.ai/v1",
        claims=("mistral-*", "magistral-*", "ministral-*", "codestral-*", "devstral-*", "pixtral-*"),
    ),
    "cohere": Preset(
        format="cohere",
        key_variable="CO_API_KEY",
        url_variable="CO_API_URL",
        base_url="https://api.cohere.com",
        claims=("command-*",),
    ),
    "azure_openai": Preset(
        format="azure_openai",
        vendor="openai",
        key_variable="AZURE_OPENAI_API_KEY",
        url_variable="AZURE_OPENAI_ENDPOINT",
        quirk_variables={"api_version": "OPENAI_API_VERSION"},
    ),
    "ollama": Preset(
        format="ollama",
        key_variable="OLLAMA_API_KEY",
        url_variable="OLLAMA_HOST",
        base_url="http://127.0.0.1:11434",
        local=True,
        address=ollama_address,
    ),
    # Model servers of one's own.
    "vllm": Preset(
        key_variable="VLLM_API_KEY",
        url_variable="VLLM_BASE_URL",
        base_url="http://127.0.0.1:8000/v1",
        quirks=_SERVER,
        local=True,
    ),
    "sglang": Preset(
        key_variable="SGLANG_API_KEY",
        url_variable="SGLANG_BASE_URL",
        base_url="http://127.0.0.1:30000/v1",
        quirks=_SERVER,
        local=True,
    ),
    "llamacpp": Preset(
        key_variable="LLAMACPP_API_KEY",
        url_variable="LLAMACPP_BASE_URL",
        base_url="http://127.0.0.1:8080/v1",
        quirks=_SERVER,
        local=True,
    ),
    "lmstudio": Preset(
        key_variable="LMSTUDIO_API_KEY",
        url_variable="LMSTUDIO_BASE_URL",
        base_url="http://127.0.0.1:1234/v1",
        quirks=_SERVER,
        local=True,
    ),
    "tgi": Preset(
        key_variable="TGI_API_KEY",
        url_variable="TGI_BASE_URL",
        base_url="http://127.0.0.1:3000/v1",
        quirks=_THINKS,
        local=True,
    ),
    # Vendors of models of their own.
    "deepseek": Preset(
        key_variable="DEEPSEEK_API_KEY",
        url_variable="DEEPSEEK_BASE_URL",
        base_url="https://api.deepseek.com/v1",
        claims=("deepseek-chat", "deepseek-reasoner"),
    ),
    "xai": Preset(
        key_variable="XAI_API_KEY",
        url_variable="XAI_BASE_URL",
        base_url="https://api.x.ai/v1",
        claims=("grok-*",),
        quirks=_COMPLETION_TOKENS,
    ),
    "perplexity": Preset(
        key_variable="PERPLEXITY_API_KEY",
        url_variable="PERPLEXITY_BASE_URL",
        base_url="https://api.perplexity.ai",
        claims=("sonar*",),
        quirks={"think_tags": True, "top_k": True, "stream_options": False},  # usage is on every chunk anyway
    ),
    "moonshot": Preset(
        key_variable="MOONSHOT_API_KEY",
        url_variable="MOONSHOT_BASE_URL",
        base_url="https://api.moonshot.ai/v1",
        claims=("kimi-*", "moonshot-*"),
    ),
    "zai": Preset(
        key_variable="ZAI_API_KEY",
        url_variable="ZAI_BASE_URL",
        base_url="https://api.z.ai/api/paas/v4",
        claims=("glm-*",),
    ),
    "dashscope": Preset(
        key_variable="DASHSCOPE_API_KEY",
        url_variable="DASHSCOPE_BASE_URL",
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        claims=("qwen-*", "qwen3-*", "qwq-*"),
        quirks={"top_k": True},
    ),
    "writer": Preset(
        key_variable="WRITER_API_KEY",
        url_variable="WRITER_BASE_URL",
        base_url="https://api.writer.com/v1",
        claims=("palmyra-*",),
        quirks={"done_marker": False},
    ),
    # Vendors of everybody's models.
    "groq": Preset(
        key_variable="GROQ_API_KEY",
        url_variable="GROQ_BASE_URL",
        base_url="https://api.groq.com/openai/v1",
        quirks=_COMPLETION_TOKENS,
    ),
    "openrouter": Preset(
        key_variable="OPENROUTER_API_KEY",
        url_variable="OPENROUTER_BASE_URL",
        base_url="https://openrouter.ai/api/v1",
        quirks={"top_k": True},
    ),
    "together": Preset(
        key_variable="TOGETHER_API_KEY",
        url_variable="TOGETHER_BASE_URL",
        base_url="https://api.together.xyz/v1",
        quirks=_SERVER,
    ),
    "fireworks": Preset(
        key_variable="FIREWORKS_API_KEY",
        url_variable="FIREWORKS_BASE_URL",
        base_url="https://api.fireworks.ai/inference/v1",
        quirks=_SERVER,
    ),
    "cerebras": Preset(
        key_variable="CEREBRAS_API_KEY",
        url_variable="CEREBRAS_BASE_URL",
        base_url="https://api.cerebras.ai/v1",
        quirks=_COMPLETION_TOKENS,
    ),
    "nvidia": Preset(
        key_variable="NVIDIA_API_KEY",
        url_variable="NVIDIA_BASE_URL",
        base_url="https://integrate.api.nvidia.com/v1",
        quirks=_THINKS,
    ),
    "nebius": Preset(
        key_variable="NEBIUS_API_KEY",
        url_variable="NEBIUS_BASE_URL",
        base_url="https://api.studio.nebius.com/v1",
        quirks=_SERVER,
    ),
    "novita": Preset(
        key_variable="NOVITA_API_KEY",
        url_variable="NOVITA_BASE_URL",
        base_url="https://api.novita.ai/v3/openai",
        quirks=_SERVER,
    ),
    "huggingface": Preset(
        key_variable="HF_TOKEN",
        url_variable="HF_ROUTER_BASE_URL",
        base_url="https://router.huggingface.co/v1",
        quirks=_THINKS,
    ),
    "snowflake": Preset(
        key_variable="SNOWFLAKE_PAT",
        url_variable="SNOWFLAKE_CORTEX_BASE_URL",
        quirks=_COMPLETION_TOKENS,
    ),
}
"""By the preset's name, which is that of its provider in the environment."""


def completed(provider: dict[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """What a provider of the file says, on top of what its preset says.

    The preset's key is taken where the provider names none; one that is not set is missed only where the address is the
    preset's own and asks for a key. Quirks are laid over one another, as long as the format is the preset's.
    """
    preset = PRESETS.get(provider.get("preset", ""))
    if preset is None:
        return provider
    said: dict[str, Any] = {"format": preset.format, "vendor": preset.vendor or provider["preset"]}
    if preset.base_url:
        said["base_url"] = preset.base_url
    if preset.claims:
        said["models"] = list(preset.claims)
    needed = not preset.local and "base_url" not in provider
    if provider.keys().isdisjoint(KEY_SOURCES) and (needed or env.get(preset.key_variable, "").strip()):
        said["api_key_env"] = preset.key_variable
    full = {**said, **provider}
    if full["format"] == preset.format:
        full["quirks"] = {**preset.quirks, **provider.get("quirks", {})}
    else:
        full["vendor"] = provider.get("vendor", "")
    return full


def quirks_of(preset: Preset, env: Mapping[str, str]) -> dict[str, Any]:
    """The quirks of a preset's provider in the environment."""
    named = {quirk: env.get(variable, "").strip() for quirk, variable in preset.quirk_variables.items()}
    return {**preset.quirks, **{quirk: value for quirk, value in named.items() if value}}
