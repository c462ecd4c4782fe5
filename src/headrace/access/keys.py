"""Who may call: keys, their secrets, and the file they are kept in.

A secret is `hr-<id>-<43 characters>`; the 43 are 256 random bits in base64url. The file holds its SHA-256 alone. A fast
hash is right here: a slow one (bcrypt, Argon2) protects secrets that people choose, which can be guessed, by making each
guess dear. Nobody can try 2**256 values at any speed, while a slow hash would cost every request its milliseconds.

Whether a secret is right is always settled by `hmac.compare_digest`, also for an id that does not exist, and missing,
unknown and wrong secrets get one answer: neither its time nor its text tells which ids there are.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import math
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("headrace.access")

_ID = re.compile(r"[a-z0-9]{1,32}")
_HASH = re.compile(r"[0-9a-f]{64}")
_PREFIX = "hr-"
_NOBODY = hashlib.sha256(b"nobody").hexdigest()
"""What a secret with an unknown id is compared with."""

_AWS_SCHEME = "aws4-hmac-sha256"
HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
"""Where the SDKs of OpenAI, Anthropic, Google and Azure put their key, in lower case."""

LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_streams", "cost_per_day", "cost_per_month")


class KeyFileError(Exception):
    """The key file cannot be read, written or understood; or what was asked of it cannot be done."""


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A caller. A limit that is None does not exist; costs are in USD, by UTC day and month."""

    id: str
    """Lower-case letters and digits; stays when the secret is rotated, so usage and budgets go on."""
    name: str
    hash: str
    """SHA-256 of the whole secret, in hexadecimal."""
    models: tuple[str, ...] = ()
    """Patterns as in fnmatch (`gpt-*`, `openai/*`, a route's name); none: every model."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_streams: int | None = None
    cost_per_day: float | None = None
    cost_per_month: float | None = None
    expires_at: str | None = None
    """RFC 3339."""
    created_at: str
    """RFC 3339."""
    disabled: bool = False
    metadata: dict[str, str] = {}

    @property
    def limited(self) -> bool:
        """Whether any limit is set."""
        return any(getattr(self, name) is not None for name in LIMITS)

    @property
    def has_budget(self) -> bool:
        return self.cost_per_day is not None or self.cost_per_month is not None

    def allows(self, *names: str) -> bool:
        """Whether the key may use a model that goes by any of these names (as asked for, `provider/model` ...)."""
        return not self.models or any(fnmatchcase(name, pattern) for name in names for pattern in self.models)

    def require(self, *names: str) -> None:
        """Raises GatewayError (forbidden) where `allows` says no; the first name is the one the caller used."""
        if not self.allows(*names):
            allowed = ", ".join(self.models)
            raise _refused(
                ErrorCode.FORBIDDEN,
                "model_not_allowed",
                f"the key {self.name!r} may not use the model {names[0]!r}; it may use: {allowed}",
            )


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    keys: list[Key]


def new_secret(key_id: str) -> str:
    return f"{_PREFIX}{key_id}-{secrets.token_urlsafe(32)}"


def hash_secret(secret: str) -> str:
    # Header values are decoded as latin-1, others may hold surrogates: whatever a caller sends has a hash.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find_secret(headers: Mapping[str, str]) -> str | None:
    """The secret in a request's headers (names in lower case), or None.

    Clients may send more than one (a Bearer token of their own beside `x-api-key`): one that looks like ours wins, else
    the first in the order of `HEADERS`. Raises GatewayError (unauthenticated) where there is an AWS signature in place of
    one: it shows whose key it was made with, and not that it is the right one.
    """
    first = None
    signed = False
    for name in HEADERS:
        value = headers.get(name)
        if value is None:
            continue
        if name == "authorization":
            scheme, _, value = value.partition(" ")
            if scheme.lower() != "bearer":
                signed = scheme.lower() == _AWS_SCHEME
                continue
        value = value.strip()
        if value.startswith(_PREFIX):
            return value
        first = first or value
    if signed and not first:
        raise _refused(
            ErrorCode.UNAUTHENTICATED,
            "signed_request",
            "requests signed with AWS keys (SigV4) cannot be checked here: send a key of this gateway as a bearer token "
            "instead (boto3: AWS_BEARER_TOKEN_BEDROCK=hr-...)",
        )
    return first or None


def parse_time(text: str) -> float:
    """Unix time of an RFC 3339 timestamp. Raises ValueError where it is none, or lacks its offset from UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("the offset from UTC is missing (write 2030-01-31T00:00:00Z)")
    return moment.timestamp()


class KeyFile:
    """The keys of a JSON file, and the means to change them.

    A file that does not exist is one without keys: it lets nobody in, and the first `create` makes it. Raises KeyFileError
    where there is a file that cannot be used.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.problem: str | None = None
        """Why the file as it is now is not in use; None when it is."""
        self._entries: dict[str, tuple[Key, float]] = {}  # id -> key, Unix time of its end
        self._seen = self._mark()
        if self._seen is not None:
            self._entries = self._read()

    @property
    def keys(self) -> tuple[Key, ...]:
        """In the order of the file."""
        return tuple(key for key, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def refresh(self) -> bool:
        """Read the file anew if it has changed; True where the keys are new ones. Never raises: a file that cannot be
        used, or that is gone, leaves the keys as they are, says so in the log once, and in `problem`."""
        mark = self._mark()
        if mark == self._seen:
            return False
        self._seen = mark
        try:
            if mark is None:
                raise KeyFileError(f"{self.path}: the file is gone; to let nobody in, write one with an empty list")
            self._entries = self._read()
        except KeyFileError as error:
            self.problem = str(error)
            logger.warning("%s (the keys read before stay in use)", error)
            return False
        self.problem = None
        logger.info("%s: read anew, %d keys", self.path, len(self._entries))
        return True

    def authenticate(self, secret: str | None, now: float) -> Key:
        """The key a secret belongs to; `now` is Unix time. Raises GatewayError: unauthenticated (401) for a missing, unknown
        or wrong secret, forbidden (403) for the right secret of a key that is revoked or has expired."""
        secret = secret or ""
        entry = self._entries.get(secret[len(_PREFIX) :].partition("-")[0]) if secret.startswith(_PREFIX) else None
        same = hmac.compare_digest(hash_secret(secret), _NOBODY if entry is None else entry[0].hash)
        if entry is None or not same:
            raise _refused(
                ErrorCode.UNAUTHENTICATED,
                "invalid_api_key",
                "a valid key is needed: send it as `Authorization: Bearer hr-...`, or where your SDK puts its API key; "
                "`headrace keys create` makes one",
            )
        key, end = entry
        if key.disabled:
            raise _refused(ErrorCode.FORBIDDEN, "key_revoked", f"the key {key.name!r} ({key.id}) has been revoked")
        if now >= end:
            raise _refused(
                ErrorCode.FORBIDDEN, "key_expired", f"the key {key.name!r} ({key.id}) expired at {key.expires_at}"
            )
        return key

    def find(self, id_or_name: str) -> Key:
        """Raises KeyFileError where no key, or more than one, goes by this."""
        if id_or_name in self._entries:
            return self._entries[id_or_name][0]
        found = [key for key in self.keys if key.name == id_or_name]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(key.id for key in found)
            raise KeyFileError(f"{self.path}: {len(found)} keys are called {id_or_name!r}; say which by its id: {ids}")
        raise KeyFileError(
            f"{self.path}: there is no key with the id or name {id_or_name!r}; `headrace keys list` shows all"
        )

    def create(
        self,
        name: str,
        *,
        now: datetime,
        models: tuple[str, ...] = (),
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrent_streams: int | None = None,
        cost_per_day: float | None = None,
        cost_per_month: float | None = None,
        expires_at: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> tuple[Key, str]:
        """Add a key; returns it and its secret, which is nowhere else. Raises KeyFileError."""
        with self._changing():
            key_id = secrets.token_hex(4)
            while key_id in self._entries:
                key_id = secrets.token_hex(4)
            secret = new_secret(key_id)
            key = Key(
                id=key_id,
                name=name,
                hash=hash_secret(secret),
                models=models,
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
                concurrent_streams=concurrent_streams,
                cost_per_day=cost_per_day,
                cost_per_month=cost_per_month,
                expires_at=expires_at,
                created_at=now.astimezone(UTC).isoformat(timespec="seconds"),
                metadata=dict(metadata or {}),
            )
            self._write([*self.keys, key])
        return key, secret

    def revoke(self, id_or_name: str) -> Key:
        """Disable a key. It stays in the file, so that its usage keeps a name. Raises KeyFileError."""
        with self._changing():
            return self._replace(msgspec.structs.replace(self.find(id_or_name), disabled=True))

    def rotate(self, id_or_name: str) -> tuple[Key, str]:
        """Give a key a new secret; the old one is void at once. Raises KeyFileError."""
        with self._changing():
            key = self.find(id_or_name)
            if key.disabled:
                raise KeyFileError(f"{self.path}: the key {key.name!r} ({key.id}) is revoked; create a new one")
            secret = new_secret(key.id)
            return self._replace(msgspec.structs.replace(key, hash=hash_secret(secret))), secret

    def _replace(self, changed: Key) -> Key:
        self._write([changed if key.id == changed.id else key for key in self.keys])
        return changed

    def _mark(self) -> tuple[int, int, int] | None:
        """What tells one state of the file from another; None: there is no file."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError:
            return (0, 0, 0)  # there is something; reading it says what is wrong
        return status.st_mtime_ns, status.st_ino, status.st_size

    def _read(self) -> dict[str, tuple[Key, float]]:
        try:
            text = self.path.read_bytes()
            mode = self.path.stat().st_mode
        except OSError as error:
            raise KeyFileError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            logger.warning("%s: other users may write this file, and so let themselves in: chmod 600 it", self.path)
        try:
            document = msgspec.json.decode(text, type=_Document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise KeyFileError(f"{self.path}: not a key file: {error}") from None
        if document.version != 1:
            raise KeyFileError(f"{self.path}: version {document.version} is not known to this Headrace, which reads 1")
        entries: dict[str, tuple[Key, float]] = {}
        for index, key in enumerate(document.keys):
            wrong = _problem(key)
            if wrong is None and key.id in entries:
                wrong = f"the id {key.id!r} is there twice"
            if wrong is not None:
                raise KeyFileError(f"{self.path}: keys[{index}]: {wrong}")
            entries[key.id] = key, math.inf if key.expires_at is None else parse_time(key.expires_at)
        return entries

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Holds off other processes that change the file, and starts from what it holds now."""
        folder = self.path.resolve().parent
        lock = None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if sys.platform != "win32":  # where folders cannot be locked, the last of two changes wins
                # A lock on the folder leaves nothing behind, and outlives the file, which each change replaces.
                lock = os.open(folder, os.O_RDONLY)
                fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if lock is not None:
                os.close(lock)
            raise KeyFileError(f"{folder}: cannot be used: {error.strerror or error}") from None
        try:
            self._seen = self._mark()
            self._entries = {} if self._seen is None else self._read()
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def _write(self, keys: list[Key]) -> None:
        """Replace the file as a whole: readers see the old one or the new one."""
        for key in keys:
            wrong = _problem(key)
            if wrong is not None:
                raise KeyFileError(f"the key {key.name!r}: {wrong}")
        target = self.path.resolve()  # a symbolic link stays one
        data = msgspec.json.format(msgspec.json.encode(_Document(version=1, keys=keys)), indent=2) + b"\n"
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # mode 0600
            try:
                with open(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, target)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            raise KeyFileError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        self._seen = self._mark()
        self._entries = self._read()
        self.problem = None


def _problem(key: Key) -> str | None:
    """What is wrong with a key whose types are right."""
    if not _ID.fullmatch(key.id):
        return f"id {key.id!r} is not made of 1 to 32 lower-case letters and digits"
    if not key.name.strip():
        return "name is empty"
    if not _HASH.fullmatch(key.hash):
        return "hash is not a SHA-256 in hexadecimal (the secret itself does not belong here)"
    if not all(pattern.strip() for pattern in key.models):
        return "models holds an empty pattern; leave the list out to allow every model"
    for name in LIMITS:
        value = getattr(key, name)
        if value is not None and not (0 < value < math.inf):
            return (
                f"{name} is {value}; it must be above 0 (leave it out for no limit, disable the key to allow nothing)"
            )
    for name in ("expires_at", "created_at"):
        moment = getattr(key, name)
        if moment is not None:
            try:
                parse_time(moment)
            except (ValueError, OverflowError) as error:
                return f"{name} is not an RFC 3339 timestamp: {error}"
    return None


def _refused(code: ErrorCode, type: str, message: str) -> GatewayError:
    return GatewayError(ErrorInfo(code=code, type=type, message=message))
