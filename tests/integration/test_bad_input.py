"""Bad input gets one clear error: on /v2 with cause and remedy, on /v1 with code and message."""

from typing import Any

import pytest

from tests.conftest import Maker
from tests.framework.leftovers import assert_clean
from tests.framework.platform import Platform

FIELDS = {"code", "message", "cause", "remedy", "retryable", "request_id"}


def refused(platform: Platform, status: int, code: str, **body: Any) -> dict[str, Any]:
    """Send a create that must fail; check the error's whole shape."""
    answer = platform.http.post("/v2/sandboxes", json={"image": "base", "ttl": "5m", **body})
    if answer.status_code == 201:
        platform.http.delete(f"/v2/sandboxes/{answer.json()['id']}")
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()
    assert set(error) == FIELDS
    assert error["code"] == code
    assert error["message"]
    assert error["remedy"]
    assert isinstance(error["retryable"], bool)
    assert error["request_id"] == answer.headers["x-request-id"]
    return error


def test_unknown_image(platform: Platform) -> None:
    error = refused(platform, 404, "image_not_found", image="no-such-image")
    assert "no-such-image" in error["message"] + str(error["cause"])


@pytest.mark.parametrize("size", ["4 gigs", "-1", "lots", "1.2.3GiB"])
def test_size(platform: Platform, size: str) -> None:
    error = refused(platform, 400, "invalid_size", resources={"memory": size})
    assert size in error["message"] + str(error["cause"])


@pytest.mark.parametrize("ttl", ["-1", "soon", "10 fortnights", -5])
def test_time_to_live(platform: Platform, ttl: Any) -> None:
    refused(platform, 400, "invalid_duration", ttl=ttl)


def test_unknown_field(platform: Platform) -> None:
    error = refused(platform, 400, "unknown_field", imgae="base")
    assert "imgae" in error["message"] + str(error["cause"])


def test_ten_megabytes_of_json(platform: Platform) -> None:
    refused(platform, 413, "request_too_large", env={"A": "x" * (10 << 20)})


def test_no_json(platform: Platform) -> None:
    answer = platform.http.post("/v2/sandboxes", content=b"{nope", headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert set(answer.json()) == FIELDS


def test_host_paths_are_closed_by_default(platform: Platform) -> None:
    refused(platform, 403, "host_path_not_allowed", volumes=[{"host": "/etc", "path": "/host"}])


def test_second_create_of_a_name(platform: Platform, make: Maker) -> None:
    make(name="bad-input-name")
    refused(platform, 409, "name_taken", name="bad-input-name")


@pytest.mark.parametrize("path", ["/v2/sandboxes/sbx_000000000000000000000000", "/v2/sandboxes/no-such-name"])
def test_unknown_sandbox(platform: Platform, path: str) -> None:
    answer = platform.http.get(path)
    assert answer.status_code == 404
    assert answer.json()["code"] == "sandbox_not_found"


def test_unknown_address(platform: Platform) -> None:
    assert platform.http.get("/v2/nothing/here").json()["code"] == "not_found"


@pytest.mark.parametrize("key", [None, "tln_wrong"])
def test_no_key(platform: Platform, key: str | None) -> None:
    headers = {"Authorization": f"Bearer {key}" if key else ""}
    for path in ("/v2/sandboxes", "/v1/sandboxes"):
        answer = platform.http.get(path, headers=headers)
        assert answer.status_code == 401
    assert platform.http.get("/healthz", headers=headers).status_code == 200
    assert platform.http.get("/version", headers=headers).status_code == 200


def test_both_kinds_of_header_are_accepted(platform: Platform) -> None:
    headers = {"Authorization": "", "OPEN-SANDBOX-API-KEY": platform.key}
    assert platform.http.get("/v2/sandboxes", headers=headers).status_code == 200
    assert platform.http.get("/v1/sandboxes", headers=headers).status_code == 200


def test_errors_of_v1_have_code_and_message_alone(platform: Platform) -> None:
    answer = platform.http.get("/v1/sandboxes/nothing")
    assert answer.status_code == 404
    assert set(answer.json()) == {"code", "message"}


def test_errors_inside_a_sandbox_have_the_same_shape(platform: Platform, make: Maker) -> None:
    sandbox = make()
    answer = platform.http.get(f"/v2/sandboxes/{sandbox.id}/fs", params={"path": "/no/such/file"})
    assert answer.status_code == 404
    assert set(answer.json()) == FIELDS
    answer = platform.http.post(f"/v2/sandboxes/{sandbox.id}/exec", json={"command": []})
    assert answer.status_code == 400
    assert set(answer.json()) == FIELDS


def test_refused_creates_leave_nothing(platform: Platform) -> None:
    for _ in range(5):
        refused(platform, 404, "image_not_found", image="no-such-image")
        refused(platform, 403, "host_path_not_allowed", volumes=[{"host": "/etc", "path": "/host"}])
    assert_clean(platform)
