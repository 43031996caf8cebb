"""Which requests are a sandbox's, and what the agent is asked for them."""

import time

import pytest

from talon_server.gateway.routes import BadRoute, by_header, by_host, by_path, find
from talon_server.gateway.signing import holds, make_token, parse_token

ID = "sbx_" + "0a" * 12


@pytest.mark.parametrize(
    ("path", "port", "asked", "prefix"),
    [
        (f"/sandboxes/{ID}/proxy/8000/a/b%20c", 8000, "/proxy/8000/a/b%20c", f"/sandboxes/{ID}/proxy/8000"),
        (f"/v1/sandboxes/{ID}/proxy/8000", 8000, "/proxy/8000/", f"/v1/sandboxes/{ID}/proxy/8000"),
        (f"/v1/sandboxes/{ID}/proxy/44772/command", None, "/command", f"/v1/sandboxes/{ID}/proxy/44772"),
        (f"/sandboxes/{ID}/proxy/44772/proxy/80/x", None, "/proxy/80/x", f"/sandboxes/{ID}/proxy/44772"),
        (f"/sandboxes/{ID}/proxy/18080/policy", 18080, "/policy", f"/sandboxes/{ID}/proxy/18080"),
        (f"/v2/sandboxes/{ID}/exec", None, "/v2/exec", f"/v2/sandboxes/{ID}"),
        (f"/v2/sandboxes/{ID}/fs/stat", None, "/v2/fs/stat", f"/v2/sandboxes/{ID}"),
        (f"/v2/sandboxes/{ID}/ports", None, "/v2/ports", f"/v2/sandboxes/{ID}"),
        (f"/v2/sandboxes/{ID}/ports/80/x//y", 80, "/proxy/80/x//y", f"/v2/sandboxes/{ID}/ports/80"),
    ],
)
def test_paths_of_sandboxes(path: str, port: int | None, asked: str, prefix: str) -> None:
    route = by_path(path)
    assert route is not None
    assert (route.sandbox, route.port, route.path, route.prefix) == (ID, port, asked, prefix)


@pytest.mark.parametrize(
    "path", ["/", "/v1/sandboxes", f"/v1/sandboxes/{ID}", f"/v1/sandboxes/{ID}/pause", f"/v2/sandboxes/{ID}/renew"]
)
def test_other_paths_are_left_to_the_api(path: str) -> None:
    assert by_path(path) is None


@pytest.mark.parametrize("port", ["0", "65536", "8000000000", "x", "-1", "٣"])
def test_ports_out_of_range_are_refused(port: str) -> None:
    with pytest.raises(BadRoute):
        by_path(f"/sandboxes/{ID}/proxy/{port}/")


@pytest.mark.parametrize("label", [f"8000-{ID}", f"{ID}-8000", f"8000-{ID.replace('_', '-')}"])
def test_host_names(label: str) -> None:
    route = by_host(f"{label}.Box.Test:8443".replace("Box.Test", "box.test"), "/x", "box.test")
    assert route is not None
    assert (route.sandbox, route.port, route.path, route.prefix) == (ID, 8000, "/proxy/8000/x", "")


def test_foreign_host_names_are_not_routes() -> None:
    assert by_host("8000-other.box.test", "/", "box.test") is None
    assert by_host(f"8000-{ID}.evil.test", "/", "box.test") is None
    assert by_host(f"8000-{ID}.box.test", "/", "") is None


def test_the_header_comes_before_the_path() -> None:
    route = find("/v2/sandboxes", {b"opensandbox-ingress-to": f"{ID}-3000".encode()}, "")
    assert route is not None
    assert (route.sandbox, route.port, route.path) == (ID, 3000, "/proxy/3000/v2/sandboxes")
    with pytest.raises(BadRoute):
        by_header("nonsense", "/")


def test_a_signed_address_opens_one_port_until_it_expires() -> None:
    now = time.time()
    token = make_token(ID, 8000, int(now) + 60, "secret")
    route = by_path(f"/v1/signed/{token}/app")
    assert route is not None
    assert route.signed is not None
    assert (route.sandbox, route.path) == (ID, "/proxy/8000/app")
    assert holds(route.signed, "secret", now)
    assert not holds(route.signed, "secret", now + 61)
    assert not holds(route.signed, "other", now)


def test_a_signed_address_cannot_be_bent() -> None:
    token = make_token(ID, 8000, int(time.time()) + 60, "secret")
    bent = parse_token(token.replace("-8000-", "-8001-"))
    assert bent is not None
    assert not holds(bent, "secret", time.time())
    with pytest.raises(BadRoute):
        by_path("/signed/short/")
