"""Every call of the client is one that api/openapi.yaml knows, with a body its schema accepts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from replay import SANDBOX, Asked, ReplayServer, Reply, as_json, as_lines
from talon_sandbox import Client

API: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "api" / "openapi.yaml").read_text())
OBJECT = {**SANDBOX, "created_at": "2026-01-02T03:04:05Z"}
SPEC: dict[str, Any] = {
    "image": "base",
    "resources": {"cpu": 0.5, "memory": "512MiB"},
    "ttl": "10m",
    "env": {"A": "1"},
    "labels": {"team": "a"},
    "user": "root",
    "workdir": "/srv",
    "entrypoint": ["sleep", "9"],
    "network": ["api.example.com"],
    "volumes": ["data:/data:ro", "/srv/x:/x"],
    "recording": "terminals",
    "queue_timeout": 5.0,
    "wait_timeout": 9.0,
}
CALLS: list[Callable[[Client], Any]] = [
    lambda client: client.create(name="demo", **SPEC),
    lambda client: client.create_many(2, **SPEC),
    lambda client: client.list(labels={"a": "b"}, state="running", name="demo"),
    lambda client: client.delete("demo"),
    lambda client: client.delete_many({"a": "b"}),
    lambda client: client.stop_many({"a": "b"}),
    lambda client: client.check(),
    lambda client: client.host(),
    lambda client: client.version(),
    lambda client: client.connect("demo").start(),
    lambda client: client.connect("demo").stop(),
    lambda client: client.connect("demo").pause(),
    lambda client: client.connect("demo").resume(),
    lambda client: client.connect("demo").renew("1h"),
    lambda client: client.connect("demo").update(labels={"a": "b"}, ttl=None),
    lambda client: client.connect("demo").get_network(),
    lambda client: client.connect("demo").set_network("sealed"),
    lambda client: client.connect("demo").network_log(since=1, limit=2),
    lambda client: client.connect("demo").snapshot("kept"),
    lambda client: client.connect("demo").destroy(),
    lambda client: client.images.list(),
    lambda client: client.images.get("base"),
    lambda client: client.images.alias("base", "b"),
    lambda client: client.images.delete("base"),
    lambda client: client.images.pull("app:1", name="app", username="u", password="p", insecure=True),
    lambda client: list(client.images.push_progress("app", "registry.example.com/app:1", username="u")),
    lambda client: list(client.images.import_progress(b"tar", "app")),
    lambda client: list(client.images.build_base_progress()),
    lambda client: list(client.images.build_progress(b"tar", "app", dockerfile="Dockerfile")),
    lambda client: client.volumes.list(),
    lambda client: client.volumes.create("data", size="1GiB"),
    lambda client: client.volumes.get("data"),
    lambda client: client.volumes.delete("data"),
    lambda client: client.snapshots.list(),
    lambda client: client.snapshots.get("s"),
    lambda client: client.snapshots.delete("s"),
    lambda client: client.pools.list(),
    lambda client: client.pools.create("p", minimum=1, maximum=2, warm_command="true", spec={"image": "base"}),
    lambda client: client.pools.get("p"),
    lambda client: client.pools.update("p", minimum=2),
    lambda client: client.pools.delete("p"),
    lambda client: client.keys.list(),
    lambda client: client.keys.create("ci"),
    lambda client: client.keys.delete("key_1"),
]


def answer(asked: Asked) -> Reply:
    """Something that every method can read."""
    if asked.path.startswith("/v2/images:"):
        return as_lines({"image": OBJECT})
    if asked.path == "/v2/sandboxes:batch":
        return as_lines({"index": 0, "sandbox": OBJECT}, {"index": 1, "sandbox": OBJECT})
    return as_json({**OBJECT, "items": [OBJECT], "key": "tln_1"})


def operation(asked: Asked) -> dict[str, Any]:
    """The specification's entry for a request."""
    for path, methods in API["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), asked.path) and asked.method.lower() in methods:
            found: dict[str, Any] = methods[asked.method.lower()]
            return found
    raise AssertionError(f"{asked.method} {asked.path} is not in api/openapi.yaml")


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_calls_are_in_the_specification(server: ReplayServer, number: int) -> None:
    server.fallback = answer
    with Client() as client:
        CALLS[number](client)
    for asked in server.asked:
        entry = operation(asked)
        named = {parameter["name"] for parameter in entry.get("parameters", []) if parameter["in"] == "query"}
        assert set(asked.query) <= named
        check_body(asked, entry.get("requestBody", {}).get("content", {}))


def check_body(asked: Asked, content: dict[str, Any]) -> None:
    if "application/json" in content:
        schema = {**content["application/json"]["schema"], "components": API["components"]}
        jsonschema.validate(asked.json(), schema)
    else:
        assert not asked.body or asked.headers["content-type"] in content


def test_models_know_every_field_of_the_specification() -> None:
    from talon_sandbox import models

    pairs: dict[str, Any] = {
        "Sandbox": models.SandboxInfo,
        "Image": models.Image,
        "Volume": models.Volume,
        "Pool": models.Pool,
    }
    pairs |= {"Snapshot": models.Snapshot, "Key": models.ApiKey}
    for name, model in pairs.items():
        specified = set(API["components"]["schemas"][name]["properties"])
        assert specified <= set(model.__dataclass_fields__), name
