"""gateway.proto, and what protoc makes of it: messages and stubs for callers in Python (extra `grpc`).

`python -m headrace.v1.generate` renews the generated modules, which no linter reads as they are not ours to change.
"""
