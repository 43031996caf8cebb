"""Arguments that several commands share: what a new sandbox shall be, labels, environment."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

from ..spec import CreateOptions
from .app import Session, UsageError


def add_sandbox_options(parser: argparse.ArgumentParser) -> None:
    """The options of `create`, `run` with a fresh sandbox, and `pool create`."""
    add = parser.add_argument
    add("--image", help="what it starts from (see tsb image ls); default: base")
    add("--snapshot", help="start from this snapshot")
    add("--pool", help="take it from this pool")
    add("--name", help="a name to use instead of the id")
    add("--resources", action="append", default=[], metavar="cpu=1,memory=512MiB", help="cpu, memory, disk, pids")
    add("--ttl", metavar="10m", help="destroy it after this time")
    add("--label", action="append", default=[], metavar="K=V")
    add("--volume", action="append", default=[], metavar="NAME:/PATH[:ro]")
    add("--network", metavar="MODE", help="open, allowlist or sealed")
    add("--allow", action="append", default=[], metavar="NAME", help="a name or address that may be reached")
    add("--recording", choices=("off", "terminals", "all"))
    add("--queue-timeout", type=float, metavar="SECONDS", help="stand in line so long when the machine is full")


def add_command_options(parser: argparse.ArgumentParser) -> None:
    """The options of `run`, `spawn` and, in part, `create`."""
    parser.add_argument("-e", "--env", action="append", default=[], metavar="K=V", help="K alone takes it from here")
    parser.add_argument("-u", "--user", help="sandbox (default), root, or uid:gid")
    parser.add_argument("-w", "--workdir", metavar="DIR", help="default: /workspace")


def create_options(options: argparse.Namespace) -> CreateOptions:
    """The SDK's options for what the user gave."""
    plain = ("image", "snapshot", "pool", "name", "ttl", "recording", "queue_timeout")
    result: dict[str, Any] = {name: value for name in plain if (value := getattr(options, name)) is not None}
    if options.resources:
        result["resources"] = resources(options.resources)
    if options.label:
        result["labels"] = pairs(options.label, "label")
    if options.volume:
        result["volumes"] = options.volume
    if policy := network_policy(options.network, options.allow, []):
        result["network"] = policy
    return cast(CreateOptions, result)


def network_policy(mode: str | None, allow: Sequence[str], deny: Sequence[str]) -> dict[str, Any] | None:
    """A network policy from --network, --allow and --deny; None when none was given."""
    if not (mode or allow or deny):
        return None
    rules = [{"action": "deny", "target": target} for target in deny]
    rules += [{"action": "allow", "target": target} for target in allow]
    policy: dict[str, Any] = {"mode": mode or ("allowlist" if allow else "open")}
    return policy | ({"rules": rules} if rules else {})


def resources(texts: Sequence[str]) -> dict[str, Any]:
    """`cpu=1,memory=512MiB` as the API takes it; the server judges the values."""
    result: dict[str, Any] = {}
    for item in ",".join(texts).split(","):
        key, mark, value = item.strip().partition("=")
        if not mark or not value:
            raise UsageError(f"{item!r} is not a resource", remedy="write it as cpu=1,memory=512MiB,disk=2GiB,pids=256")
        result[key] = _number(value) if key in ("cpu", "pids") else value
    return result


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def pairs(texts: Sequence[str], what: str) -> dict[str, str]:
    """K=V items as a map."""
    result = {}
    for text in texts:
        key, mark, value = text.partition("=")
        if not mark or not key:
            raise UsageError(f"{text!r} is not a {what}", remedy="write it as KEY=VALUE")
        result[key] = value
    return result


def environment(texts: Sequence[str]) -> dict[str, str]:
    """--env items; a name without a value takes that of tsb's own environment."""
    return pairs([text if "=" in text else f"{text}={os.environ.get(text, '')}" for text in texts], "variable")


def chosen_command(words: Sequence[str], argv: Sequence[str]) -> str | list[str]:
    """The command: one word is text for the shell, several are argv."""
    given = list(argv) or list(words)
    if not given:
        raise UsageError("there is no command", remedy='add one: tsb run SB "uname -a", or tsb run -- uname -a')
    return given[0] if len(given) == 1 else given


def write_bytes(data: bytes, stream: str = "stdout") -> None:
    """Pass a command's output on at once and unchanged."""
    target = sys.stderr.buffer if stream == "stderr" else sys.stdout.buffer
    target.write(data)
    target.flush()


def each(session: Session, names: Sequence[str], act: Any) -> int:
    """Do something to each named thing; go on after a failure, and give the first failure's exit code."""
    from ..errors import TalonError
    from .app import exit_code, tell

    code = 0
    for name in names:
        try:
            act(name)
        except TalonError as error:
            tell(error)
            code = code or exit_code(error)
    return code
