"""Secrets: the wrapper that keeps them out of logs, and reading a provider's key where the configuration says it is.

Rule: a secret leaves this module only through `Secret.reveal()`. Keys named by variable or file are read when they are
asked for, not when the configuration is loaded, so a rotated key file takes effect without a restart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.config.settings import Aws, Provider

_MAX_KEY_FILE_BYTES = 64 * 1024
_HEADER_SAFE = re.compile(r"[\x21-\x7e]+\Z")


class CredentialError(Exception):
    """A provider's key cannot be read, or is nothing that a header can carry. The message never holds the key."""


class Secret:
    """A string that does not show itself: repr, str, format and rich all print asterisks."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself. Never log it, never put it in an error."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> str:
        raise TypeError("a Secret cannot be pickled")


def api_key(name: str, provider: Provider, env: Mapping[str, str]) -> Secret | None:
    """The key of the provider called `name`, from `api_key`, `api_key_env` or `api_key_file`; None where it has none.

    White space around a key (the newline at a file's end) is cut off. Raises CredentialError.
    """
    if provider.api_key is not None:
        return _checked(provider.api_key.reveal(), f"api_key of provider {name}")
    if provider.api_key_env is not None:
        value = env.get(provider.api_key_env)
        if value is None:
            raise CredentialError(f"provider {name}: environment variable {provider.api_key_env} is not set")
        return _checked(value, f"environment variable {provider.api_key_env} (the key of provider {name})")
    if provider.api_key_file is not None:
        return _checked(_read(name, provider.api_key_file), f"{provider.api_key_file} (the key of provider {name})")
    return None


def aws_keys(aws: Aws, env: Mapping[str, str]) -> tuple[str, str, str | None] | None:
    """The access key, secret key and session token of `aws`, or those of the usual variables; None where they are to be
    looked for elsewhere: in the profile, or where AWS's own tools find them. Raises CredentialError."""
    if aws.access_key_id is not None:
        if aws.secret_access_key is None:
            raise CredentialError("aws.secret_access_key is missing beside aws.access_key_id")
        token = aws.session_token.reveal() if aws.session_token is not None else None
        return aws.access_key_id.reveal(), aws.secret_access_key.reveal(), token
    access, secret = env.get("AWS_ACCESS_KEY_ID", "").strip(), env.get("AWS_SECRET_ACCESS_KEY", "").strip()
    if aws.profile is not None or not (access and secret):
        return None
    return access, secret, env.get("AWS_SESSION_TOKEN", "").strip() or None


def _read(name: str, file: str) -> str:
    try:
        with open(file, "rb") as stream:
            return stream.read(_MAX_KEY_FILE_BYTES).decode("ascii")
    except OSError as error:
        raise CredentialError(f"provider {name}: cannot read {file}: {error.strerror or error}") from None
    except ValueError:
        # The decoder's own message would quote bytes of the key.
        raise CredentialError(f"provider {name}: {file} holds bytes that no key has") from None


def _checked(value: str, origin: str) -> Secret:
    value = value.strip()
    if not value:
        raise CredentialError(f"{origin} is empty")
    if not _HEADER_SAFE.match(value):
        raise CredentialError(f"{origin} holds white space, control or non-ASCII characters, which no header may carry")
    return Secret(value)
