"""The lifecycle API on the wire: statuses, bodies and headers that clients other than the SDKs rely on."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.conformance.opensandbox.live import IMAGE, Live

BOUND_S = 60
BODY = {
    "image": {"uri": IMAGE},
    "entrypoint": ["tail", "-f", "/dev/null"],
    "timeout": 600,
    "resourceLimits": {"cpu": "500m", "memory": "256Mi"},
}


@pytest.fixture
def api(live: Live) -> Iterator[httpx.Client]:
    headers = {"OPEN-SANDBOX-API-KEY": live.key}
    with httpx.Client(base_url=f"http://{live.domain}", headers=headers, timeout=BOUND_S) as client:
        yield client


@contextmanager
def sandbox(api: httpx.Client, **change: Any) -> Iterator[dict[str, Any]]:
    answer = api.post("/v1/sandboxes", json={**BODY, **change})
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    try:
        yield made
    finally:
        api.delete(f"/v1/sandboxes/{made['id']}")


def test_health_and_version_are_open_and_the_rest_needs_a_key(live: Live) -> None:
    with httpx.Client(base_url=f"http://{live.domain}", timeout=BOUND_S) as open_client:
        assert open_client.get("/health").json() == {"status": "healthy"}
        assert open_client.get("/v1/version").json()["version"]
        missing = open_client.get("/v1/sandboxes")
        assert (missing.status_code, missing.json()["code"]) == (401, "MISSING_API_KEY")
        wrong = open_client.get("/sandboxes", headers={"OPEN-SANDBOX-API-KEY": "nonsense"})
        assert (wrong.status_code, wrong.json()["code"]) == (401, "INVALID_API_KEY")


@pytest.mark.parametrize("mount", ["", "/v1"])
def test_both_mounts_and_request_ids(api: httpx.Client, mount: str) -> None:
    listed = api.get(f"{mount}/sandboxes?pageSize=1", headers={"X-Request-ID": "abc"})
    assert listed.status_code == 200
    assert listed.headers["x-request-id"] == "abc"
    assert set(listed.json()["pagination"]) == {"page", "pageSize", "totalItems", "totalPages", "hasNextPage"}
    assert len(api.get(f"{mount}/snapshots").headers["x-request-id"]) == 32


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"timeout": 5}, "timeout"),
        ({"image": None}, "image"),
        ({"entrypoint": []}, "entrypoint"),
        ({"volumes": [{"name": "v", "mountPath": "relative", "host": {"path": "/x"}}]}, "mountPath"),
        ({"lifecycle": {"surprise": 1}}, "surprise"),
    ],
)
def test_bodies_that_do_not_fit_are_422_and_name_the_field(
    api: httpx.Client, change: dict[str, Any], field: str
) -> None:
    answer = api.post("/v1/sandboxes", json={**BODY, **change})
    assert answer.status_code == 422
    assert field in str(answer.json()["detail"])
    assert field in answer.json()["message"]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"metadata": {"opensandbox.io/x": "1"}}, 400, "SANDBOX::INVALID_METADATA_LABEL"),
        ({"resourceLimits": {"cpu": "many"}}, 400, "SANDBOX::INVALID_PARAMETER"),
        ({"resourceLimits": {"gpu": "1"}}, 400, "SANDBOX::INVALID_PARAMETER"),
        ({"env": {"A": "a\0b"}}, 400, "SANDBOX::INVALID_PARAMETER"),
        ({"entrypoint": ["a\0b"]}, 400, "SANDBOX::INVALID_PARAMETER"),
        ({"extensions": {"access.renew.extend.seconds": "5"}}, 400, "SANDBOX::INVALID_PARAMETER"),
        ({"platform": {"os": "windows", "arch": "amd64"}}, 400, "SANDBOX::INVALID_PARAMETER"),
        ({"networkPolicy": {"egress": [{"action": "allow", "target": "a b"}]}}, 400, "SANDBOX::INVALID_PARAMETER"),
        ({"image": {"uri": "no.such/image:here"}}, None, "DOCKER::SANDBOX_IMAGE_PULL_FAILED"),
        (
            {"volumes": [{"name": "v", "mountPath": "/m", "host": {"path": "/etc"}}]},
            400,
            "VOLUME::HOST_PATH_NOT_ALLOWED",
        ),
        (
            {"volumes": [{"name": "v", "mountPath": "/m", "ossfs": {"bucket": "abc", "endpoint": "e"}}]},
            400,
            "VOLUME::UNSUPPORTED_BACKEND",
        ),
        (
            {"volumes": [{"name": "v", "mountPath": "/m", "pvc": {"claimName": "no", "createIfNotExists": False}}]},
            404,
            "VOLUME::PVC_NOT_FOUND",
        ),
        (
            {"image": None, "snapshotId": "snp_none"},
            404,
            "SNAPSHOT::NOT_FOUND",
        ),
        (
            {"image": None, "entrypoint": None, "resourceLimits": None, "templateId": "tpl-1"},
            501,
            "FSB::API_NOT_SUPPORTED",
        ),
    ],
)
def test_what_cannot_be_given_is_refused_by_code(
    api: httpx.Client, change: dict[str, Any], status: int | None, code: str
) -> None:
    answer = api.post("/v1/sandboxes", json={**BODY, **change})
    assert answer.json()["code"] == code, answer.text
    assert status in (None, answer.status_code)


def test_creates_are_idempotent_by_key(api: httpx.Client) -> None:
    key = {"Idempotency-Key": uuid.uuid4().hex}
    first = api.post("/v1/sandboxes", json=BODY, headers=key)
    again = api.post("/v1/sandboxes", json=BODY, headers=key)
    assert first.json()["id"] == again.json()["id"]
    other = api.post("/v1/sandboxes", json={**BODY, "timeout": 700}, headers=key)
    assert other.status_code == 409
    api.delete(f"/v1/sandboxes/{first.json()['id']}")


def test_states_and_what_they_forbid(api: httpx.Client) -> None:
    with sandbox(api) as made:
        path = f"/v1/sandboxes/{made['id']}"
        assert api.post(f"{path}/resume").json()["code"] == "DOCKER::SANDBOX_NOT_PAUSED"
        paused = api.post(f"{path}/pause")
        assert (paused.status_code, paused.content) == (202, b"")
        assert api.post(f"{path}/pause").json()["code"] == "DOCKER::SANDBOX_NOT_RUNNING"
        assert api.post(f"{path}/resume").status_code == 202
        assert api.delete(path).status_code == 204
        assert api.get(path).json()["status"]["state"] == "Terminated"
        assert api.get(f"{path}/endpoints/80").status_code == 404


def test_renewal(api: httpx.Client) -> None:
    with sandbox(api, timeout=None) as made:
        assert "expiresAt" not in made
        answer = api.post(f"/v1/sandboxes/{made['id']}/renew-expiration", json={"expiresAt": "2099-01-01T00:00:00Z"})
        assert (answer.status_code, answer.json()["code"]) == (409, "DOCKER::INVALID_EXPIRATION")
    with sandbox(api) as made:
        path = f"/v1/sandboxes/{made['id']}/renew-expiration"
        assert api.post(path, json={"expiresAt": "2001-01-01T00:00:00Z"}).status_code == 400
        assert api.post(path, json={"expiresAt": "soon"}).status_code == 422
        assert api.post(path, json={"expiresAt": "2099-01-01T00:00:00Z"}).json() == {
            "expiresAt": "2099-01-01T00:00:00Z"
        }


def test_endpoints(api: httpx.Client) -> None:
    with sandbox(api, secureAccess=True) as made:
        path = f"/v1/sandboxes/{made['id']}/endpoints"
        direct = api.get(f"{path}/18080").json()
        assert {"X-EXECD-ACCESS-TOKEN", "OpenSandbox-Secure-Access", "OPENSANDBOX-EGRESS-AUTH"} == set(
            direct["headers"]
        )
        proxied = api.get(f"{path}/8000?use_server_proxy=true").json()
        assert proxied["endpoint"].endswith(f"/v1/sandboxes/{made['id']}/proxy/8000")
        assert api.get(f"{path}/8000?use_server_proxy=true&expires=9999999999").status_code == 400
        assert api.get(f"{path}/0").status_code == 422
        assert api.get(f"{path}/8000?expires=1").status_code == 400


def test_the_policy_under_both_addresses(api: httpx.Client) -> None:
    with sandbox(api) as made:
        endpoint = api.get(f"/v1/sandboxes/{made['id']}/endpoints/18080").json()
        address, headers = f"http://{endpoint['endpoint']}/policy", endpoint["headers"]
        assert httpx.put(address, headers=headers, json={}).json()["mode"] == "deny_all"
        rules = [{"action": "allow", "target": "*.example.com"}]
        changed = api.patch(f"/v1/sandboxes/{made['id']}/networkpolicy", json=rules).json()
        assert changed["policy"] == {"defaultAction": "deny", "egress": rules}
        assert httpx.get(address, headers=headers).json()["policy"] == changed["policy"]
        assert httpx.get(address).status_code == 401
        wrong = httpx.put(address, headers=headers, json={"egress": [{"action": "maybe", "target": "x"}]})
        assert (wrong.status_code, wrong.headers["content-type"]) == (400, "text/plain; charset=utf-8")
        gone = httpx.request("DELETE", address, headers=headers, json=["*.example.com"]).json()
        assert gone["mode"] == "deny_all"


def test_the_entrypoints_end_is_the_sandboxes_end(api: httpx.Client) -> None:
    wanted = {"exit 42": ("Failed", "exited with code 42"), "exit 0": ("Terminated", "exited with code 0")}
    for script, (state, says) in wanted.items():
        with sandbox(api, entrypoint=["sh", "-c", script]) as made:
            deadline = time.monotonic() + BOUND_S
            while (status := api.get(f"/v1/sandboxes/{made['id']}").json()["status"])["state"] == "Running":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert (status["state"], says in status["message"]) == (state, True), status


def test_a_pre_start_hook_runs_before_the_entrypoint(api: httpx.Client) -> None:
    hook = {"preStart": {"command": ["sh", "-c", "echo prepared > /tmp/ready"], "timeoutSeconds": 30}}
    entry = ["sh", "-c", "cat /tmp/ready; sleep 1000"]
    with sandbox(api, lifecycle=hook, entrypoint=entry) as made:
        assert made["entrypoint"] == entry
        deadline = time.monotonic() + BOUND_S
        address = f"/v1/sandboxes/{made['id']}/diagnostics/logs?scope=container"
        while "prepared" not in api.get(address).json()["content"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_pools(api: httpx.Client) -> None:
    name = f"p-{uuid.uuid4().hex[:8]}"
    template = {"spec": {"containers": [{"image": IMAGE, "env": [{"name": "FROM", "value": "pool"}]}]}}
    capacity = {"bufferMax": 1, "bufferMin": 1, "poolMax": 2, "poolMin": 1}
    made = api.post("/v1/pools", json={"name": name, "template": template, "capacitySpec": capacity})
    assert made.status_code == 201, made.text
    try:
        assert api.post("/v1/pools", json=made.json() | {"template": template}).status_code == 409
        policy = {"defaultAction": "deny", "egress": [{"action": "allow", "target": "a.example"}]}
        body = {"timeout": 600, "extensions": {"poolRef": name}, "networkPolicy": policy}
        answer = api.post("/v1/sandboxes", json=body)
        assert answer.status_code == 202, answer.text
        id = answer.json()["id"]
        assert api.get(f"/v1/sandboxes/{id}/networkpolicy").json()["policy"] == policy
        api.delete(f"/v1/sandboxes/{id}")
        smaller = {"bufferMax": 0, "bufferMin": 0, "poolMax": 1, "poolMin": 0}
        assert api.put(f"/v1/pools/{name}", json={"capacitySpec": smaller}).json()["capacitySpec"]["bufferMin"] == 0
        assert name in [pool["name"] for pool in api.get("/v1/pools").json()["items"]]
    finally:
        assert api.delete(f"/v1/pools/{name}").status_code == 204
    assert api.get(f"/v1/pools/{name}").status_code == 404


def test_unknown_addresses_and_methods(api: httpx.Client) -> None:
    assert api.get("/v1/nothing").json()["detail"] == "Not Found"
    wrong = api.put("/v1/sandboxes")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")
    event = {"eventType": "sandbox.create", "createDurationMs": 3, "success": True}
    assert api.post("/v1/metrics/events", json=event).status_code == 204
    assert api.get("/v1/sandboxes?metadata=nonsense").json()["code"] == "INVALID_METADATA_FORMAT"
    assert api.get("/v1/sandboxes?page=0").status_code == 422
