"""gRPC under `headrace serve`: several workers, TLS, what is missing, what is refused."""

from __future__ import annotations

import datetime
import ipaddress
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headrace.config import ConfigError, loads
from headrace.serve import exposure
from headrace.tape import ReplayServer
from headrace.v1 import gateway_pb2 as pb
from tests.live import LoopThread, gateway_config, live_gateway
from tests.transports.test_grpc import address, request, stub_on


def test_several_workers(tmp_path: Path) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text("server: {port: 0, grpc: {port: 0}}\n")
    command = [
        sys.executable,
        "-c",
        "from headrace.cli import main; main()",
        "serve",
        "-c",
        str(file),
        "--workers",
        "2",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            port = ""
            for line in process.stderr:
                found = re.match(r"gRPC on .*:(\d+)$", line.strip())
                if found:
                    port = found[1]
                    break
            assert port
            for number in range(8):  # channels of their own connections
                options = [("grpc.use_local_subchannel_pool", 1), ("headrace.test", number)]
                with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
                    answer = stub_on(channel).ChatOnce(request("replay/text"), timeout=30, wait_for_ready=True)
                    assert answer.choices[0].message.content
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            assert process.wait(60) == 0


def certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(addresses, critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


def test_tls(servers: LoopThread, replay: ReplayServer, tmp_path: Path) -> None:
    cert_file, key_file = certificate(tmp_path)
    extra = f"server: {{grpc: {{port: 0, cert_file: '{cert_file}', key_file: '{key_file}'}}}}\n"
    with live_gateway(servers, gateway_config(replay.base_url, extra)) as live:
        credentials = grpc.ssl_channel_credentials(cert_file.read_bytes())
        with grpc.secure_channel(address(live), credentials) as channel:
            assert stub_on(channel).ChatOnce(request("as-openai/text"), timeout=20).choices
        with grpc.insecure_channel(address(live)) as channel, pytest.raises(grpc.RpcError):
            stub_on(channel).ListModels(pb.ListModelsRequest(), timeout=20)


def test_half_of_tls_is_refused(tmp_path: Path) -> None:
    cert_file, _ = certificate(tmp_path)
    with pytest.raises(ConfigError, match="key_file"):
        loads(f"server: {{grpc: {{cert_file: '{cert_file}'}}}}\n", filename="test.yaml", env={})


def test_an_open_port_without_keys_is_refused() -> None:
    config = loads("server: {grpc: {host: 0.0.0.0}}\n", filename="test.yaml", env={})
    reason = exposure.refusal(config)
    assert reason is not None
    assert reason.startswith("server.grpc.host is 0.0.0.0")


def test_without_the_extra_the_start_says_so(tmp_path: Path) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text("server: {port: 0, grpc: {port: 0}}\n")
    script = (
        "import sys; sys.modules['grpc'] = None\n"
        "from headrace.cli import main\n"
        f"sys.argv = ['headrace', 'serve', '-c', {str(file)!r}]\n"
        "main()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert b"pip install headrace[grpc]" in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_connect_without_the_extra_says_so(
    servers: LoopThread, replay: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.gateway.client import post

    nothing: Any = None
    monkeypatch.setitem(sys.modules, "headrace.serve.rpc.connect", nothing)
    monkeypatch.delattr("headrace.serve.rpc.connect", raising=False)
    with live_gateway(servers, gateway_config(replay.base_url)) as live:
        answer = post(live.port, "/headrace.v1.LlmGateway/ChatOnce", {})
        assert (answer.status, answer.json()["code"]) == (501, "unimplemented")
        assert "pip install headrace[grpc]" in answer.json()["message"]
