"""Reaching a caller: HTTP routes and negotiation, and the driver that runs one engine stream over ASGI.

Drivers are thin: what is decided here is who the caller is talking to and in which format; how a stream lives is the
engine's.
"""
