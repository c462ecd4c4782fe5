"""The vocabulary: requests, events, parts, stop reasons, usage, errors; the legal order of a stream; the assembler.

Imports nothing of ours. Everything here is data and pure functions on it.
"""
