"""The server serves what api/openapi.yaml says and nothing else, and its answers have the shapes told there."""

import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import yaml
from starlette.applications import Starlette
from starlette.routing import Route

from api.world import World, world
from control.world import run
from talon_server.api.v2.app import build

API: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "api" / "openapi.yaml").read_text())
UNSPECIFIED = {"/docs", "/openapi.json", "/docs/openapi.json", "/recordings/{id}", "/recordings/assets/{name}"}
UNSERVED = {("POST", "/v2/images:push"), ("POST", "/v2/images:build")}
"""Specified for clients, and answered with not_found until the server has them."""


def specified() -> set[tuple[str, str]]:
    return {
        (method.upper(), re.sub(r"{\w+}", "{}", path))
        for path, methods in API["paths"].items()
        for method in methods
        if method in ("get", "put", "post", "patch", "delete")
    }


def test_every_route_is_specified_and_every_specified_one_is_served(tmp_path: Path) -> None:
    async def work() -> set[tuple[str, str]]:
        async with world(tmp_path) as one:
            app: Any = build(one.services)
            while not isinstance(app, Starlette):
                app = app.app
            return {
                (method, re.sub(r"{\w+(:path)?}", "{}", route.path))
                for route in app.routes
                if isinstance(route, Route) and route.path not in UNSPECIFIED
                for method in (route.methods or set()) - {"HEAD"}
            }

    served = run(work())
    assert served - specified() == set(), "served, but not specified"
    assert specified() - served - UNSERVED == set(), "specified, but not served"


def check(answer: httpx.Response, path: str) -> Any:
    """An answer against the schema of its status."""
    method = answer.request.method.lower()
    told = API["paths"][path][method]["responses"]
    assert str(answer.status_code) in told, f"{method} {path} answered {answer.status_code}: {answer.text}"
    response = told[str(answer.status_code)]
    if "$ref" in response:
        response = API["components"]["responses"][response["$ref"].rpartition("/")[2]]
    if "content" in response:
        schema = response["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator({**schema, "components": API["components"]}).validate(answer.json())
    return answer.json() if answer.content else None


async def exchange(one: World, method: str, path: str, body: Any = None, **names: str) -> Any:
    answer = await one.http.request(method, path.format(**names), json=body)
    return check(answer, path)


def test_exchanges_have_the_shapes_told(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as one:
            rules = [{"action": "allow", "target": "*.example.com", "ports": [443, "8000-8100"]}]
            body = {
                "name": "n",
                "resources": {"cpu": "500m", "memory": "256MiB"},
                "labels": {"a": "b"},
                "ttl": "1h",
                "network": {"rules": rules},
                "lifecycle": {"pre_start": {"command": ["true"]}},
            }
            made = await exchange(one, "POST", "/v2/sandboxes", body)
            assert made["network"]["rules"] == rules
            assert made["resources"]["cpu"] == 0.5
            await exchange(one, "POST", "/v2/sandboxes", {"name": "n"})
            await exchange(one, "POST", "/v2/sandboxes", {"image": "nothing"})
            await exchange(one, "GET", "/v2/sandboxes")
            await exchange(one, "GET", "/v2/sandboxes/{id}", id="n")
            await exchange(one, "GET", "/v2/sandboxes/{id}", id="unknown")
            await exchange(one, "PATCH", "/v2/sandboxes/{id}", {"labels": {}, "ttl": None}, id="n")
            await exchange(one, "POST", "/v2/sandboxes/{id}/renew", {"ttl": 60}, id="n")
            await exchange(one, "PUT", "/v2/sandboxes/{id}/network", {"mode": "sealed"}, id="n")
            await exchange(one, "GET", "/v2/sandboxes/{id}/network", id="n")
            await exchange(one, "GET", "/v2/sandboxes/{id}/network/log", id="n")
            await exchange(one, "POST", "/v2/sandboxes/{id}/snapshots", {"name": "s"}, id="n")
            await exchange(one, "GET", "/v2/snapshots")
            await exchange(one, "GET", "/v2/snapshots/{id}", id="s")
            await exchange(one, "DELETE", "/v2/snapshots/{id}", id="s")
            await exchange(one, "POST", "/v2/volumes", {"name": "v"})
            await exchange(one, "GET", "/v2/volumes/{name}", name="v")
            await exchange(one, "GET", "/v2/volumes")
            await exchange(one, "POST", "/v2/pools", {"name": "p", "minimum": 0, "spec": {"env": {"A": "1"}}})
            await exchange(one, "PATCH", "/v2/pools/{name}", {"maximum": 2}, name="p")
            await exchange(one, "GET", "/v2/pools")
            await exchange(one, "DELETE", "/v2/pools/{name}", name="p")
            key = await exchange(one, "POST", "/v2/keys", {"name": "k"})
            await exchange(one, "GET", "/v2/keys")
            await exchange(one, "DELETE", "/v2/keys/{id}", id=key["id"])
            for path in ("/v2/images", "/v2/recordings", "/v2/audit", "/v2/host", "/healthz", "/version"):
                await exchange(one, "GET", path)
            await exchange(one, "GET", "/v2/images/{name}", name="base")
            await exchange(one, "DELETE", "/v2/sandboxes/{id}", id="n")

    run(work())


@pytest.mark.parametrize("path", ["/openapi.json", "/docs/openapi.json"])
def test_the_specification_is_served(tmp_path: Path, path: str) -> None:
    async def work() -> None:
        async with world(tmp_path) as one:
            assert (await one.http.get(path)).json()["info"]["title"] == "Talon"

    run(work())
