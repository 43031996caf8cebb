"""The heads of proxied messages: which header fields pass, which are taken out, which are ours.

Called by the relay and the upgrade tunnel. Pure. RFC 9110 §7.6.1 (hop-by-hop fields), RFC 9112 §6 (one framing
only); nothing that opens the server or the sandbox's agent ever reaches a program in the sandbox.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Fields = Iterable[tuple[bytes, bytes]]

_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
_OURS = frozenset(
    {
        b"host",
        b"expect",
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-server",
        b"x-real-ip",
        b"x-request-id",
        b"opensandbox-ingress-to",
        b"opensandbox-access-renew",
        b"open-sandbox-api-key",
        b"open-sandbox-client-ip",
        b"x-execd-access-token",
        b"opensandbox-secure-access",
        b"opensandbox-egress-auth",
    }
)
_DROP_IN = _HOP | _OURS
_OWN_COOKIE = b"talon_"


class Ambiguous(ValueError):
    """A message whose length can be read in two ways (RFC 9112 §6.3); it is refused, never guessed at."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What the client said and who it is, for the X-Forwarded fields."""

    address: str
    scheme: str
    host: bytes
    request_id: bytes


@dataclass(frozen=True, slots=True)
class Framing:
    """How the body's end is known: by `length`, by chunks, or there is no body."""

    length: int | None = None
    chunked: bool = False

    @property
    def has_body(self) -> bool:
        return self.chunked or bool(self.length)


def framing(fields: Fields) -> Framing:
    """Raises `Ambiguous` on two lengths, a length beside chunks, or a coding that does not end in `chunked`."""
    length: int | None = None
    chunked = False
    for name, value in fields:
        if name == b"content-length":
            if length is not None or not value.isdigit():
                raise Ambiguous("send exactly one Content-Length, a decimal number")
            length = int(value)
        elif name == b"transfer-encoding":
            if chunked or value.strip().lower() != b"chunked":
                raise Ambiguous("Transfer-Encoding may only be 'chunked'")
            chunked = True
    if chunked and length is not None:
        raise Ambiguous("send either Content-Length or Transfer-Encoding, not both")
    return Framing(length, chunked)


def request_head(
    method: bytes, target: bytes, fields: Fields, peer: Peer, *, token: str, host: bytes, prefix: str, to_user: bool
) -> bytes:
    """The whole head to the agent, with the agent's token; `to_user` also keeps the client's secrets out."""
    fields = list(fields)
    named = connection_names(fields)
    lines = [method, b" ", target, b" HTTP/1.1\r\nhost: ", host, b"\r\nx-execd-access-token: ", token.encode()]
    for name, value in fields:
        if name in _DROP_IN or name in named or not _may_pass(name, value, to_user, token):
            continue
        value = _without_own_cookies(value) if name == b"cookie" else value
        value = _same_origin(value, peer, host) if name == b"origin" and to_user else value
        if value or name != b"cookie":
            lines += (b"\r\n", name, b": ", value)
    lines += (b"\r\nx-forwarded-for: ", peer.address.encode(), b"\r\nx-forwarded-proto: ", peer.scheme.encode())
    lines += (b"\r\nx-forwarded-host: ", peer.host, b"\r\nx-request-id: ", peer.request_id)
    if prefix:
        lines += (b"\r\nx-forwarded-prefix: ", prefix.encode("latin-1"))
    return b"".join(lines)


def response_fields(fields: Fields, *, prefix: str, to_user: bool) -> list[tuple[bytes, bytes]]:
    """What the client gets of the agent's head; redirects and cookies of a path-mounted program stay in its path."""
    fields = list(fields)
    named = connection_names(fields)
    kept = []
    for name, value in fields:
        if name in _HOP or name in named:
            continue
        if prefix and to_user and name == b"location":
            value = _under(prefix, value)
        elif to_user and name == b"set-cookie":
            value = _scoped_cookie(value, prefix)
        kept.append((name, value))
    return kept


def connection_names(fields: Fields) -> frozenset[bytes]:
    """The fields a `Connection` header declares hop-by-hop; framing fields cannot be declared away."""
    said: set[bytes] = set()
    for name, value in fields:
        if name == b"connection":
            said.update(part.strip().lower() for part in value.split(b","))
    return frozenset(said - {b"content-length", b"host", b"close", b"keep-alive"})


def first_values(fields: Fields) -> Mapping[bytes, bytes]:
    """Each field's first value, for looking up single-valued fields."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        found.setdefault(name, value)
    return found


def _may_pass(name: bytes, value: bytes, to_user: bool, token: str) -> bool:
    if name != b"authorization":
        return True
    return to_user and not _opens_server(value, token)


def _opens_server(value: bytes, token: str) -> bool:
    secret = value[7:].strip()
    return value[:7].lower() == b"bearer " and (secret[:4] == b"tln_" or secret == token.encode())


def _without_own_cookies(value: bytes) -> bytes:
    pairs = [pair.strip() for pair in value.split(b";")]
    return b"; ".join(pair for pair in pairs if pair and not pair.startswith(_OWN_COOKIE))


def _same_origin(origin: bytes, peer: Peer, host: bytes) -> bytes:
    """A page of the preview stays same-origin for a program that compares Origin with the Host it got."""
    scheme, _, rest = origin.partition(b"://")
    return b"http://" + host if rest == peer.host and scheme in (b"http", b"https") else origin


def _under(prefix: str, location: bytes) -> bytes:
    if location.startswith(b"/") and not location.startswith(b"//"):
        return prefix.encode("latin-1") + location
    return location


def _scoped_cookie(value: bytes, prefix: str) -> bytes:
    parts = [part.strip() for part in value.split(b";")]
    if parts[0].startswith(_OWN_COOKIE):
        return b"refused=; Max-Age=0"
    kept = [part for part in parts if part[:7].lower() != b"domain="]
    if not prefix:
        return b"; ".join(kept)
    paths = [part[5:] for part in kept if part[:5].lower() == b"path="]
    kept = [part for part in kept if part[:5].lower() != b"path="]
    inner = paths[-1] if paths and paths[-1].startswith(b"/") else b"/"
    return b"; ".join([*kept, b"Path=" + prefix.encode("latin-1") + inner])
