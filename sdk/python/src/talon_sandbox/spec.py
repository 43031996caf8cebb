"""What a sandbox shall be, from Python values to the API's JSON: pure; used by create, pools and the CLI."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from .errors import InvalidRequestError

Duration = str | float | timedelta
Command = str | Sequence[str]
Network = str | Mapping[str, Any] | Sequence[str]
Volumes = Mapping[str, str] | Sequence[str | Mapping[str, Any]]


class CreateOptions(TypedDict, total=False):
    """Keyword arguments of `create`. Everything is optional.

    image: a name or alias of `tsb image ls` ("base"). snapshot, pool: start from these instead.
    resources: {"cpu": 2, "memory": "4GiB", "disk": "10GiB", "pids": 512}.
    ttl: life time, "10m", seconds or timedelta; None: no end. env, labels: string maps.
    idle_timeout: freeze it after so long without a request; the next one wakes it.
    user: "sandbox" (default), "root" or "uid:gid". workdir: "/workspace". entrypoint: argv started with the sandbox.
    network: "open", "allowlist", "sealed", a list of allowed names, or {"mode": …, "rules": […]}.
    volumes: {"/data": "name"} or ["name:/data:ro"] or API objects.
    wait: return when it runs (default) or at once. wait_timeout: seconds for that.
    queue_timeout: seconds to stand in line when the machine is full.
    """

    image: str
    snapshot: str
    pool: str
    name: str
    resources: Mapping[str, Any]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    user: str
    workdir: str
    entrypoint: Sequence[str]
    ttl: Duration | None
    idle_timeout: Duration
    network: Network
    volumes: Volumes
    lifecycle: Mapping[str, Any]
    recording: str | Mapping[str, Any]
    secure_access: bool
    wait: bool
    wait_timeout: float
    queue_timeout: float


_FOR_THE_QUERY = ("wait", "wait_timeout", "queue_timeout")


def create_body(options: CreateOptions) -> dict[str, Any]:
    """The JSON of POST /v2/sandboxes."""
    body: dict[str, Any] = {key: value for key, value in options.items() if key not in _FOR_THE_QUERY}
    if "ttl" in body:
        body["ttl"] = duration(body["ttl"])
    if "idle_timeout" in body:
        body["idle_timeout"] = duration(body["idle_timeout"])
    if "network" in body:
        body["network"] = network(body["network"])
    if "volumes" in body:
        body["volumes"] = volumes(body["volumes"])
    if "entrypoint" in body:
        body["entrypoint"] = list(body["entrypoint"])
    if isinstance(body.get("recording"), str):
        body["recording"] = {"mode": body["recording"]}
    return body


def create_query(options: CreateOptions) -> dict[str, Any]:
    """The query of POST /v2/sandboxes."""
    query: dict[str, Any] = {"wait": "running" if options.get("wait", True) else "none"}
    if "wait_timeout" in options:
        query["wait_timeout_s"] = options["wait_timeout"]
    if "queue_timeout" in options:
        query["queue_timeout_s"] = options["queue_timeout"]
    return query


def duration(value: Duration | None) -> str | float | None:
    """A duration as the API takes it: text with a unit, or seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def network(value: Network) -> dict[str, Any]:
    """A network policy; a list of names allows exactly these."""
    if isinstance(value, str):
        return {"mode": value}
    if isinstance(value, Mapping):
        return dict(value)
    return {"mode": "allowlist", "rules": [{"action": "allow", "target": target} for target in value]}


def volumes(value: Volumes) -> list[dict[str, Any]]:
    """Volume mounts as the API takes them."""
    if isinstance(value, Mapping):
        return [_mount(name, path) for path, name in value.items()]
    return [dict(item) if isinstance(item, Mapping) else _volume_text(item) for item in value]


def _volume_text(text: str) -> dict[str, Any]:
    source, _, rest = text.partition(":")
    path, _, flag = rest.partition(":")
    if not source or not path or flag not in ("", "ro", "rw"):
        raise InvalidRequestError(
            f"{text!r} is not a volume mount", code="volume_invalid", remedy="write it as NAME:/path or NAME:/path:ro"
        )
    return _mount(source, path) | ({"read_only": True} if flag == "ro" else {})


def _mount(source: str, path: str) -> dict[str, Any]:
    return {"host" if source.startswith("/") else "name": source, "path": path}


def command(value: Command) -> str | list[str]:
    """A command as the API takes it: text for the shell, or argv."""
    return value if isinstance(value, str) else list(value)


def exec_body(
    value: Command,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    timeout: Duration | None = None,
    stdin: str | bytes | None = None,
) -> dict[str, Any]:
    """The JSON of POST /v2/exec and /v2/processes; what is None is left to the sandbox's defaults."""
    body: dict[str, Any] = {"command": command(value)}
    given = {"cwd": cwd, "env": dict(env) if env else None, "user": user}
    body.update({key: item for key, item in given.items() if item is not None})
    if timeout is not None:
        body["timeout_s"] = seconds(timeout)
    if isinstance(stdin, bytes):
        body["stdin_base64"] = base64.b64encode(stdin).decode()
    elif stdin is not None:
        body["stdin"] = stdin
    return body


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def seconds(value: Duration) -> float:
    """A duration in seconds: a number, a timedelta, or text like "1.5h"."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float):
        return float(value)
    text = value.strip()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(digits) :].strip() or "s"
    try:
        result = float(digits) * _UNITS[unit]
    except (ValueError, KeyError):
        result = -1.0
    if result < 0:
        raise InvalidRequestError(
            f"{value!r} is not a duration",
            code="duration_invalid",
            remedy='write a number and ms, s, m, h, d or w: "10m"',
        )
    return result
