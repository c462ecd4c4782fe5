"""The configuration: one YAML file, or none, becomes a typed `Config`; a model's name becomes a provider.

`load` and `loads` raise `ConfigError`, which names file, line and field of every problem. `Catalogue` says who answers
for a model. `json_schema` describes the file, docs/configuration.md explains it. Secrets are wrapped (`Secret`) or
read when they are needed (`api_key`), and no repr shows them.
"""

from headrace.config.credentials import CredentialError, Secret, api_key, aws_keys
from headrace.config.errors import ConfigError, Problem
from headrace.config.loader import load, loads
from headrace.config.models import AmbiguousModel, Catalogue, ModelEntry, Resolved, RoutedTo, UnknownModel
from headrace.config.schema import json_schema
from headrace.config.settings import (
    Aws,
    Breaker,
    Candidate,
    Config,
    Grpc,
    Limits,
    Price,
    Provider,
    Redis,
    Retry,
    Route,
    Server,
    Timeouts,
    Usage,
)

__all__ = [
    "AmbiguousModel",
    "Aws",
    "Breaker",
    "Candidate",
    "Catalogue",
    "Config",
    "ConfigError",
    "CredentialError",
    "Grpc",
    "Limits",
    "ModelEntry",
    "Price",
    "Problem",
    "Provider",
    "Redis",
    "Resolved",
    "Retry",
    "Route",
    "RoutedTo",
    "Secret",
    "Server",
    "Timeouts",
    "UnknownModel",
    "Usage",
    "api_key",
    "aws_keys",
    "json_schema",
    "load",
    "loads",
]
