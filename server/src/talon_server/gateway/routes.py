"""Which requests belong to a sandbox: a path, host name or header read as a `Route`.

Called by the relay for each request and by the upgrade tunnel. Pure. A `Route` says which sandbox, which
port (None: the agent itself), and the path to ask there; who may use it is decided in `access`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from talon_server.gateway.signing import SignedRoute, parse_token

AGENT_PORT = 44772
EGRESS_PORT = 18080
NATIVE = frozenset({"exec", "processes", "fs", "metrics", "terminals", "contexts", "ports"})
"""First segments of `/v2/sandboxes/{id}/…` that the agent answers."""

_HOST_PORT_FIRST = re.compile(r"(\d{1,5})-(sbx[-_][0-9a-f]{24})\Z")
_HOST_ID_FIRST = re.compile(r"(sbx[-_][0-9a-f]{24})-(\d{1,5})\Z")


@dataclass(frozen=True, slots=True)
class Route:
    """`path` is what the agent is asked; `prefix` is what the client sees before it (for `Location`, cookies).

    `port` is None for the agent's own routes, else the port inside the sandbox. `native` routes answer errors
    in the shape of /v2, the others in OpenSandbox's.
    """

    sandbox: str
    port: int | None
    path: str
    prefix: str
    native: bool = False
    signed: SignedRoute | None = None

    @property
    def to_user(self) -> bool:
        """True when a program of the sandbox answers, so nothing of the server's may reach it."""
        return self.port is not None and self.port != EGRESS_PORT

    @property
    def to_egress(self) -> bool:
        return self.port == EGRESS_PORT


class BadRoute(ValueError):
    """The address names a sandbox but cannot be used; the text says what to change."""


def by_path(path: str) -> Route | None:
    """`path` is the raw (still percent-encoded) path of the request; None when it is not a sandbox's."""
    if path.startswith("/v2/sandboxes/"):
        return _native(path)
    start = 3 if path.startswith("/v1/") else 0
    if path.startswith("/sandboxes/", start):
        return _proxied(path, start)
    if path.startswith("/signed/", start):
        return _signed(path, start)
    return None


def by_host(host: str, path: str, domain: str) -> Route | None:
    """`{port}-{id}.{domain}` (or `{id}-{port}.…`); underscores of the id may be written as hyphens."""
    name = host.rpartition(":")[0] if _has_port(host) else host
    name = name.lower()
    if not domain or not name.endswith("." + domain):
        return None
    label = name[: -len(domain) - 1]
    if match := _HOST_PORT_FIRST.match(label):
        return _to_port(_id(match[2]), match[1], path, "")
    if match := _HOST_ID_FIRST.match(label):
        return _to_port(_id(match[1]), match[2], path, "")
    return None


def by_header(value: str, path: str) -> Route:
    """`OpenSandbox-Ingress-To: {id}-{port}` or a signed `{id}-{port}-{expires}-{signature}`."""
    if signed := parse_token(value):
        return _to_port(signed.sandbox, str(signed.port), path, "", signed)
    sandbox, _, port = value.rpartition("-")
    if not sandbox:
        raise BadRoute("OpenSandbox-Ingress-To must be {sandbox id}-{port}")
    return _to_port(sandbox, port, path, "")


def find(path: str, headers: Mapping[bytes, bytes], domain: str) -> Route | None:
    """The one order of precedence: header, then host name, then path."""
    if ingress := headers.get(b"opensandbox-ingress-to"):
        return by_header(ingress.decode("latin-1").strip(), path)
    if domain and (host := headers.get(b"host")) and (route := by_host(host.decode("latin-1"), path, domain)):
        return route
    return by_path(path)


def _native(path: str) -> Route | None:
    sandbox, _, rest = path[14:].partition("/")
    first, slash, more = rest.partition("/")
    if not sandbox or first not in NATIVE:
        return None
    if first == "ports" and more:
        port, cut, tail = more.partition("/")
        return _to_port(sandbox, port, cut + tail or "/", f"/v2/sandboxes/{sandbox}/ports/{port}", native=True)
    return Route(sandbox, None, f"/v2/{first}{slash}{more}", f"/v2/sandboxes/{sandbox}", native=True)


def _proxied(path: str, start: int) -> Route | None:
    parts = path[start + 11 :].split("/", 3)
    if len(parts) < 3 or parts[1] != "proxy" or not parts[0]:
        return None
    rest = "/" + parts[3] if len(parts) == 4 else "/"
    return _to_port(parts[0], parts[2], rest, f"{path[:start]}/sandboxes/{parts[0]}/proxy/{parts[2]}")


def _signed(path: str, start: int) -> Route:
    token, slash, rest = path[start + 8 :].partition("/")
    signed = parse_token(token)
    if signed is None:
        raise BadRoute("this signed address is damaged; ask for a new one")
    return _to_port(signed.sandbox, str(signed.port), slash + rest or "/", f"{path[:start]}/signed/{token}", signed)


def _to_port(
    sandbox: str, text: str, path: str, prefix: str, signed: SignedRoute | None = None, *, native: bool = False
) -> Route:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 65535:
        raise BadRoute("the port must be a number from 1 to 65535")
    port = int(text)
    if port == AGENT_PORT:
        return Route(sandbox, None, path, prefix, native, signed)
    asked = path if port == EGRESS_PORT else f"/proxy/{port}{path}"
    return Route(sandbox, port, asked, prefix, native, signed)


def _id(label: str) -> str:
    return "sbx_" + label[4:]


def _has_port(host: str) -> bool:
    return ":" in host and host.rpartition(":")[2].isdigit()
