"""What is written down of a claimed shell, for the server that comes after this one: whose it is, and its walls.

A file `claim.json`, 0600, in the shell's directory; written by `host` before the agent is told, read at adoption.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from talon_server.model.network import Action, Mode, NetworkPolicy, Rule

FILE = "claim.json"


@dataclass(frozen=True, slots=True)
class Claim:
    """The sandbox in a shell, the token of its agent, and the network policy in force."""

    id: str
    token: str
    network: NetworkPolicy
    recording: str = ""

    def save(self, directory: Path) -> None:
        """Write it, whole or not at all."""
        part = directory / "claim.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self), file)
        part.rename(directory / FILE)

    @classmethod
    def load(cls, directory: Path) -> "Claim | None":
        """What was written, or None when the shell was never claimed."""
        try:
            told = json.loads((directory / FILE).read_text())
        except FileNotFoundError:
            return None
        return cls(told["id"], told["token"], _policy(told["network"]), told.get("recording", ""))


def _policy(told: Mapping[str, Any]) -> NetworkPolicy:
    rules = tuple(_rule(rule) for rule in told["rules"])
    return NetworkPolicy(Mode(told["mode"]), rules, Action(told["default"]))


def _rule(told: Mapping[str, Any]) -> Rule:
    ports = tuple((int(low), int(high)) for low, high in told["ports"])
    return Rule(Action(told["action"]), told["target"], ports, told["protocol"])
