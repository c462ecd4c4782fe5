"""Headrace: a streaming gateway for language models.

Any provider's stream in, one event model in the middle, any client's format out.
"""

__version__ = "0.1.0"
