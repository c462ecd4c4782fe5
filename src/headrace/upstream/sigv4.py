"""Signing requests to AWS (Signature Version 4): `SigV4Signer`. The signature itself is botocore's.

The rule: `load` may read files and ask services for credentials, and belongs in a thread; `sign` only computes, with what
was loaded last. So signing never waits for anything, and whoever owns the signer calls `load` again every `RELOAD_SECONDS`,
long before temporary credentials end. The trade-off: the hash of a large body is computed in the event loop, in about the
time that it took to write it.

Signed are the host, the content type and AWS's own headers: what proxies may change is not.
"""

from __future__ import annotations

import importlib.util
from typing import Any, NamedTuple

import msgspec

from .request import HttpRequest

RELOAD_SECONDS = 60.0

INSTALLED = importlib.util.find_spec("botocore") is not None
"""Whether botocore is there, which is not installed by default."""

HOW_TO_INSTALL = "install Headrace with its extra `aws`: it needs botocore to sign requests"


class SigningError(Exception):
    """There are no credentials to sign with. The message says why, and never holds any."""


class AwsKeys(NamedTuple):
    """Credentials that are given and not looked for."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return "AwsKeys(***)"


class SigV4Signer:
    """Signs for one region and service. `keys`: to sign with these, and never look for others; else those of `profile`,
    or what AWS's usual chain finds (environment, shared files, container, instance).

    Raises ValueError where botocore is not installed.
    """

    def __init__(
        self, region: str, service: str = "bedrock", *, keys: AwsKeys | None = None, profile: str | None = None
    ) -> None:
        if not INSTALLED:
            raise ValueError(HOW_TO_INSTALL)
        # Here and not at the top, as few need it; here and not where it signs, as it takes its time.
        from botocore.auth import SigV4Auth  # type: ignore[import-untyped]  # it has no types
        from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]  # it has no types

        self._auth: Any = SigV4Auth
        self._request: Any = AWSRequest
        self._region = region
        self._service = service
        self._profile = profile
        self._found: Any = None  # botocore's credentials, which renew themselves
        self._keys: Any = keys  # as they are now
        self._problem = "no AWS credentials were looked for yet"
        self.fixed = keys is not None
        """Whether `load` has nothing to do."""

    def load(self) -> None:
        """Find credentials, or renew them. Blocks; to be called in a thread. What goes wrong is told by `sign`."""
        if self.fixed:
            return
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]  # it has no types
        from botocore.session import Session  # type: ignore[import-untyped]  # it has no types

        try:
            if self._found is None:
                self._found = Session(profile=self._profile).get_credentials()
            if self._found is None:
                self._problem = "no AWS credentials were found"
                return
            self._keys = self._found.get_frozen_credentials()
        except (BotoCoreError, OSError) as error:
            self._problem = f"AWS credentials cannot be loaded: {error}"

    def sign(self, request: HttpRequest) -> HttpRequest:
        """The request with the headers of its signature, for now. Raises SigningError."""
        if self._keys is None:
            raise SigningError(self._problem)
        signed = {
            name: value
            for name, value in request.headers
            if name.lower() == "content-type" or name.lower().startswith("x-amz-")
        }
        aws = self._request(method=request.method, url=request.url, headers=signed, data=request.body)
        self._auth(self._keys, self._service, self._region).add_auth(aws)
        made = {name: value for name, value in aws.headers.items() if name not in signed}
        replaced = {name.lower() for name in made}
        kept = [(name, value) for name, value in request.headers if name.lower() not in replaced]
        return msgspec.structs.replace(request, headers=[*kept, *made.items()])
