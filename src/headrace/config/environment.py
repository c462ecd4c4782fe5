"""Providers that need no file: those whose usual variables are in the environment, and the embedded one.

A vendor whose variables are widely known is one row of `ENVIRONMENT_PROVIDERS`.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping

import msgspec

from headrace.config.errors import ConfigError, Invalid, Problem
from headrace.config.kinds import KINDS, Scalar
from headrace.config.references import Expanded
from headrace.config.settings import Aws, FormatName, Provider

SOURCE = "environment"
"""What stands for the file's name in problems with a variable."""


class EnvironmentProvider(msgspec.Struct, frozen=True):
    """How a vendor's usual variables make a provider. `claims` are its model names, as `models` of a provider."""

    format: FormatName
    key_variable: str
    url_variable: str
    default_url: str
    claims: tuple[str, ...]


ENVIRONMENT_PROVIDERS: dict[str, EnvironmentProvider] = {
    "openai": EnvironmentProvider(
        format="openai_chat",
        key_variable="OPENAI_API_KEY",
        url_variable="OPENAI_BASE_URL",
        default_url="https://api.openai.com/v1",
        claims=("gpt-*", "o1*", "o3*", "o4*", "chatgpt-*"),
    ),
    "anthropic": EnvironmentProvider(
        format="anthropic",
        key_variable="ANTHROPIC_API_KEY",
        url_variable="ANTHROPIC_BASE_URL",
        default_url="https://api.anthropic.com",
        claims=("claude-*",),
    ),
}
"""By the provider's name, which is its vendor's."""


def environment_providers(env: Mapping[str, str]) -> dict[str, Provider]:
    """The providers of the table that have a key or an address in `env`. Raises ConfigError for a malformed address.

    With an address and no key the provider is used without authentication: a model server of one's own.
    """
    providers: dict[str, Provider] = {}
    problems: list[Problem] = []
    for name, row in ENVIRONMENT_PROVIDERS.items():
        has_key = bool(env.get(row.key_variable, "").strip())
        url = env.get(row.url_variable, "").strip()
        if not (has_key or url):
            continue
        try:
            base_url = _base_url(url or row.default_url, row.url_variable)
        except Invalid as invalid:
            problems.append(Problem(SOURCE, 0, 0, row.url_variable, invalid.message, invalid.hint))
            continue
        providers[name] = Provider(
            format=row.format,
            vendor=name,
            base_url=base_url,
            api_key_env=row.key_variable if has_key else None,
            models=list(row.claims),
        )
    bedrock = _bedrock(env)
    if bedrock is not None:
        providers["bedrock"] = bedrock
    if problems:
        raise ConfigError(problems)
    return providers


BEDROCK_TOKEN = "AWS_BEARER_TOKEN_BEDROCK"  # noqa: S105  # the variable's name
BEDROCK_CLAIMS = ("anthropic.*", "amazon.nova-*", "us.*", "eu.*", "apac.*", "global.*")


def _bedrock(env: Mapping[str, str]) -> Provider | None:
    """Amazon Bedrock, where a region is named and there is an API key, or access keys and botocore to sign with them."""
    region = (env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "").strip()
    token = bool(env.get(BEDROCK_TOKEN, "").strip())
    keys = all(env.get(name, "").strip() for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    if not re.fullmatch(r"[a-z0-9-]+", region):
        return None
    if not token and (not keys or importlib.util.find_spec("botocore") is None):
        return None
    return Provider(
        format="bedrock",
        base_url=f"https://bedrock-runtime.{region}.amazonaws.com",
        api_key_env=BEDROCK_TOKEN if token else None,
        aws=None if token else Aws(region=region),
        models=list(BEDROCK_CLAIMS),
    )


def replay_provider() -> Provider:
    """The embedded provider. Its format is the one that can say everything; its address is known once it runs."""
    return Provider(format="anthropic", base_url="", embedded=True)


def _base_url(url: str, variable: str) -> str:
    kind = KINDS["base_url"]
    base_url = kind.value(Scalar(url, "str", Expanded(url, url, (variable,))), msgspec.inspect.type_info(str))
    assert isinstance(base_url, str)
    return base_url
