"""The server under test, as OpenSandbox's clients are told of it."""

from dataclasses import dataclass

IMAGE = "python:3.12"
"""What OpenSandbox's users write; a server without a registry has it as another name of its base image."""


@dataclass(frozen=True)
class Live:
    """`domain` is host:port, as the clients want it."""

    domain: str
    key: str
