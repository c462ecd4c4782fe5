"""TLS settings for connections to providers: verification on, the system's authorities, HTTP/1.1 announced by ALPN."""

from __future__ import annotations

import os
import ssl


def tls_context(ca_file: str | os.PathLike[str] | None = None, verify: bool = True) -> ssl.SSLContext:
    """A client context that checks certificate and host name.

    `ca_file` (PEM) adds authorities to the system's own. `verify=False` accepts any certificate, so anybody on the way
    can read and change the traffic, API keys included; only an explicit setting may ask for it. Raises ValueError
    naming the file where it cannot be used.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"cannot use {os.fspath(ca_file)!r} as a file of CA certificates (PEM): {error}") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
