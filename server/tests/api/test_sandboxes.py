"""/v2/sandboxes over HTTP: requests read strictly, errors that help, hang-ups, batches and streams."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from api.world import World, world
from control.world import run, states, until


async def refused(one: World, status: int, **body: Any) -> dict[str, Any]:
    answer = await one.http.post("/v2/sandboxes", json=body)
    error: dict[str, Any] = answer.json()
    assert answer.status_code == status, error
    assert set(error) == {"code", "message", "cause", "remedy", "retryable", "request_id"}
    assert error["request_id"] == answer.headers["x-request-id"]
    assert error["remedy"]
    return error


def test_a_wrong_request_is_told_what_is_wrong_and_what_is_near(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as one:
            error = await refused(one, 400, imgae="base")
            assert (error["code"], error["remedy"]) == ("unknown_field", "Did you mean 'image'?")
            error = await refused(one, 400, resources={"memroy": "1GiB"})
            assert "resources.memroy" in error["message"]
            assert "memory" in error["remedy"]
            assert (await refused(one, 400, resources={"memory": "4 gigs"}))["code"] == "invalid_size"
            assert (await refused(one, 400, ttl="-1"))["code"] == "invalid_duration"
            assert (await refused(one, 404, image="nothing"))["code"] == "image_not_found"
            assert (await refused(one, 400, pool="p", image="base"))["code"] == "invalid_request"
            hook = {"name": "a", "schedule": "whenever", "command": ["true"]}
            assert "schedule" in (await refused(one, 400, lifecycle={"periodic": [hook]}))["message"]
            assert (await refused(one, 413, env={"A": "x" * (10 << 20)}))["code"] == "request_too_large"
            assert states(one.services) == {}

    run(work())


V1 = {"image": {"uri": "base"}, "resourceLimits": {"cpu": "1"}, "entrypoint": ["sleep", "9"]}


@pytest.mark.parametrize(("path", "asked"), [("/v2/sandboxes", {"image": "base"}), ("/v1/sandboxes", V1)])
def test_a_create_whose_client_hangs_up_is_undone(tmp_path: Path, path: str, asked: dict[str, Any]) -> None:
    async def work() -> None:
        async with world(tmp_path) as one:
            one.host.hold("create")
            body = json.dumps(asked).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {one.key}\r\n"
            _, writer = await asyncio.open_connection("127.0.0.1", one.port)
            try:
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await until(lambda: one.host.calls["create"] == 1, "it is being made")
            finally:
                writer.close()
                await writer.wait_closed()
            await until(lambda: not states(one.services), "it is undone")
            assert one.host.files == set()

    run(work())


def test_a_batch_tells_each_result(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as one:
            one.host.refuse["create"] = 2
            answer = await one.http.post("/v2/sandboxes:batch", json={"count": 5, "spec": {"labels": {"b": "1"}}})
            lines = [json.loads(line) for line in answer.text.splitlines()]
            assert sorted(line["index"] for line in lines) == [0, 1, 2, 3, 4]
            assert [line["error"]["code"] for line in lines if "error" in line] == ["runtime_failed"] * 2
            made = {line["sandbox"]["id"] for line in lines if "sandbox" in line}
            stopped = await one.http.post("/v2/sandboxes:stop", json={"labels": {"b": "1"}})
            assert set(stopped.json()["done"]) == made
            assert (await one.http.post("/v2/sandboxes:delete", json={"labels": {}})).status_code == 400
            deleted = await one.http.post("/v2/sandboxes:delete", json={"labels": {"b": "1"}})
            assert set(deleted.json()["done"]) == made
            assert states(one.services) == {}

    run(work())


def test_events_go_on_where_the_client_was(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as one:
            for name in ("a", "b"):
                await one.http.post("/v2/sandboxes", json={"name": name})
            first = await events(one, 4)
            assert [kind for kind, _ in first] == ["state", "created", "state", "created"]
            rest = await events(one, 2, headers={"Last-Event-ID": str(first[1][1]["sequence"])})
            assert rest == first[2:]

    run(work())


async def events(one: World, count: int, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    """The first events of the stream."""
    found: list[tuple[str, dict[str, Any]]] = []
    kind = ""
    async with one.http.stream("GET", "/v2/events", **options) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((kind, json.loads(line.removeprefix("data: "))))
                if len(found) == count:
                    break
    return found


def test_changes_that_a_state_does_not_allow(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as one:
            await one.http.post("/v2/sandboxes", json={"name": "a"})
            for verb, status in (("resume", 409), ("start", 409), ("pause", 200), ("pause", 409), ("resume", 200)):
                answer = await one.http.post(f"/v2/sandboxes/a/{verb}")
                assert answer.status_code == status, answer.text
                assert status == 200 or answer.json()["code"] == "invalid_transition"

    run(work())


def test_keys_are_needed_and_the_rest_is_open(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as one:
            wrong = {"Authorization": "Bearer tln_wrong"}
            for path in ("/v2/sandboxes", "/v2/host", "/metrics", "/v2/keys", "/v1/sandboxes"):
                assert (await one.http.get(path, headers=wrong)).status_code == 401
            for path in ("/healthz", "/version", "/docs", "/openapi.json", "/docs/assets/swagger-ui.css"):
                assert (await one.http.get(path, headers=wrong)).status_code == 200
            made = (await one.http.post("/v2/keys", json={"name": "plain"})).json()
            plain = {"Authorization": "", "OPEN-SANDBOX-API-KEY": made["key"]}
            assert (await one.http.get("/v2/sandboxes", headers=plain)).status_code == 200
            assert (await one.http.post("/v2/keys", json={"name": "x"}, headers=plain)).status_code == 403
            assert "talon_create_queue" in (await one.http.get("/metrics")).text

    run(work())
