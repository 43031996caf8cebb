"""Which network a server's sandboxes live in: the configured one, the one they had, or a free one.

Called by `worker.assembly` before anything is opened. The gateway's address on the loopback interface carries a label
that says whose it is, so a server finds its own again; changing the network waits until no sandbox runs in it.
"""

import json
import logging
import subprocess
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from talon_server.errors import TalonError

log = logging.getLogger(__name__)


def label(instance: str) -> str:
    """How a server marks its gateway's address; at most 15 characters."""
    return f"lo:tg{instance}"


def settle(instance: str, wanted: IPv4Network | None, *, occupied: bool) -> IPv4Network:
    """The network to use. `occupied` tells that sandboxes run. Raises host_unsuitable when none is free."""
    had = _gateway(instance)
    if had is None:
        return wanted or _free_network(instance)
    former = IPv4Network(f"{had}/16", strict=False)
    if wanted is None or wanted[1] == had:
        return wanted or former
    if occupied:
        log.warning("sandboxes run in %s: the network changes to %s when none does at a start", former, wanted)
        return former
    subprocess.run(["ip", "addr", "del", f"{had}/32", "dev", "lo"], check=False, capture_output=True)
    return wanted


def links() -> set[tuple[str, str]]:
    """Address and interface of every route to one host: the sandboxes' that are whole have one."""
    return {(route["dst"], route.get("dev", "")) for route in _ip("route", "show")}


def _gateway(instance: str) -> IPv4Address | None:
    for interface in _ip("addr", "show", "dev", "lo"):
        for known in interface.get("addr_info", ()):
            if known.get("label") == label(instance):
                return IPv4Address(known["local"])
    return None


def _free_network(instance: str) -> IPv4Network:
    routes = _ip("route", "show", "table", "all")
    taken = [IPv4Network(route["dst"]) for route in routes if route["dst"][0].isdigit()]
    first = int(instance, 16)
    for step in range(192):
        network = IPv4Network((10 << 24 | (32 + (first + step) % 192) << 16, 16))
        if not any(network.overlaps(route) for route in taken):
            return network
    raise TalonError("host_unsuitable", "no network of 10.0.0.0/8 is free", remedy="Set network.addresses.")


def _ip(*arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(["ip", "-4", "-json", *arguments], capture_output=True, check=True)
    answer: list[dict[str, Any]] = json.loads(done.stdout or b"[]")
    return answer
