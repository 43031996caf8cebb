"""The network as sandboxes see it: names of their own, a resolver, loopback, ports through the gateway."""

import httpx
import pytest

from talon_sandbox import Sandbox
from tests.framework.platform import Platform
from tests.framework.waiting import until


def test_own_name_and_loopback(shared: Sandbox) -> None:
    assert shared.run("getent hosts localhost").exit_code == 0
    assert shared.run('getent hosts "$(hostname)"').exit_code == 0
    assert (
        shared.run("cat /sys/class/net/lo/operstate 2>/dev/null; cat /etc/resolv.conf").stdout.count("nameserver") == 1
    )


def test_a_port_through_the_gateway(platform: Platform, sb: Sandbox) -> None:
    sb.fs.write_text("/workspace/index.html", "served from inside")
    sb.spawn("python3 -u -m http.server 8000")
    until(lambda: any(port.port == 8000 for port in sb.ports()), "the server listens")
    endpoint = platform.http.get(f"/v1/sandboxes/{sb.id}/endpoints/8000").json()
    url = f"http://{endpoint['endpoint']}/index.html"
    assert httpx.get(url, headers=endpoint.get("headers"), timeout=60).text == "served from inside"
    assert httpx.get(url, timeout=60).status_code == 401, "without the sandbox's token it is closed"


def test_a_port_where_nothing_listens(platform: Platform, sb: Sandbox) -> None:
    endpoint = platform.http.get(f"/v1/sandboxes/{sb.id}/endpoints/9999").json()
    answer = httpx.get(f"http://{endpoint['endpoint']}/", headers=endpoint.get("headers"), timeout=60)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("mode", ["open", "sealed", "allowlist"])
def test_each_mode_starts_and_answers(platform: Platform, mode: str) -> None:
    with platform.sandbox(network={"mode": mode}) as sandbox:
        assert sandbox.run("echo up").stdout == "up\n"
