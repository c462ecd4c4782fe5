"""Every asynchronous test of this folder runs on asyncio's own event loop and on uvloop."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headrace.upstream import Client, tls_context


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Authority(NamedTuple):
    """A certificate authority made for the test run, and a server with a certificate of it."""

    ca_file: Path
    server_context: ssl.SSLContext


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("tls")
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)

    def certificate(
        subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> x509.Certificate:
        names = [x509.NameAttribute(NameOID.COMMON_NAME, subject)], [x509.NameAttribute(NameOID.COMMON_NAME, issuer)]
        hosts: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.DNSName("api.example.test"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name(names[0]))
            .issuer_name(x509.Name(names[1]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .sign(signer, hashes.SHA256())
        )

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_file, server_file = folder / "ca.pem", folder / "server.pem"
    ca_file.write_bytes(
        certificate("test authority", "test authority", ca_key, ca_key, ca=True).public_bytes(
            serialization.Encoding.PEM
        )
    )
    server_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate("test server", "test authority", key, ca_key, ca=False).public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return Authority(ca_file, context)


@pytest.fixture(scope="session")
def trusting(authority: Authority) -> ssl.SSLContext:
    """A client's context that trusts the test authority."""
    return tls_context(ca_file=authority.ca_file)


@pytest.fixture
async def client(trusting: ssl.SSLContext) -> AsyncIterator[Client]:
    """A client without a proxy. Nothing may reach the event loop's exception handler meanwhile."""
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    client = Client(ssl_context=trusting, env={})
    yield client
    await client.aclose()
    assert problems == []
