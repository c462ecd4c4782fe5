"""Providers that need no file: those whose usual variables are in the environment, and the embedded one."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection, Mapping

import msgspec

from headrace.config.errors import ConfigError, Invalid, Problem
from headrace.config.kinds import KINDS, Scalar
from headrace.config.presets import PRESETS, quirks_of
from headrace.config.references import Expanded
from headrace.config.settings import Aws, Provider

SOURCE = "environment"
"""What stands for the file's name in problems with a variable."""


def environment_providers(env: Mapping[str, str], *, without: Collection[str] = ()) -> dict[str, Provider]:
    """The presets that have a key or an address in `env`, but for those named. Raises ConfigError for a bad address.

    With an address and no key the provider is used without authentication: a model server of one's own. With a key and
    no address, where the preset has none either, it is left out.
    """
    providers: dict[str, Provider] = {}
    problems: list[Problem] = []
    for name, preset in PRESETS.items():
        has_key = bool(env.get(preset.key_variable, "").strip())
        url = preset.address(env.get(preset.url_variable, "").strip())
        if name in without or not (has_key or url) or not (url or preset.base_url):
            continue
        try:
            base_url = _base_url(url or preset.base_url, preset.url_variable)
        except Invalid as invalid:
            problems.append(Problem(SOURCE, 0, 0, preset.url_variable, invalid.message, invalid.hint))
            continue
        providers[name] = Provider(
            format=preset.format,
            preset=name,
            vendor=preset.vendor or name,
            base_url=base_url,
            api_key_env=preset.key_variable if has_key else None,
            models=list(preset.claims),
            quirks=quirks_of(preset, env),
        )
    bedrock = _bedrock(env)
    if bedrock is not None and "bedrock" not in without:
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
