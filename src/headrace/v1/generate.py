"""Generates the modules beside gateway.proto with grpcio-tools, which developers have: python -m headrace.v1.generate."""

from __future__ import annotations

import sys
from pathlib import Path

PROTO = "headrace/v1/gateway.proto"
GENERATED = ("gateway_pb2.py", "gateway_pb2.pyi", "gateway_pb2_grpc.py")
SOURCE = Path(__file__).parents[2]


def generate(target: Path) -> None:
    """Write the modules below `target`, in the folders of their package. Raises RuntimeError where protoc complains."""
    from grpc_tools import protoc

    folder = Path(protoc.__file__).parent / "_proto"  # the well-known types
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"-I{SOURCE}", f"-I{folder}", *outputs, PROTO]):
        raise RuntimeError(f"protoc did not accept {PROTO}")


if __name__ == "__main__":
    generate(SOURCE)
    sys.stdout.write(f"wrote {', '.join(GENERATED)}\n")
