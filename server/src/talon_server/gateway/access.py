"""Who may use a route: an API key, the sandbox's own token, or a signed address.

Called by the relay and the upgrade tunnel before anything reaches an agent. Invariant: without a credential that
holds, a caller learns nothing, not even whether the sandbox exists.
"""

import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from talon_server.errors import TalonError
from talon_server.gateway.routes import Route
from talon_server.gateway.signing import holds

_TOKEN_FIELDS = (b"x-execd-access-token", b"opensandbox-secure-access", b"opensandbox-egress-auth")


@dataclass(frozen=True, slots=True)
class Located:
    """A running sandbox: its agent's socket and token; `renews` when each access moves its expiry."""

    id: str
    socket: Path
    token: str
    tenant: str = ""
    renews: bool = False


class Directory(Protocol):
    """What the gateway knows of the rest: where sandboxes are and which keys hold."""

    def tenant(self, key: str) -> str | None:
        """Whose key this is; None when it does not hold."""

    def locate(self, ref: str, tenant: str | None) -> Located:
        """By id, or by name within a tenant. Raises TalonError: not found, not running."""

    def accessed(self, id: str) -> None:
        """A request reached this sandbox (renew on access)."""


class Refused(Exception):
    """The gateway's own refusals: the platform's error, and the code OpenSandbox's clients know for it."""

    def __init__(self, opensandbox_code: str, error: TalonError) -> None:
        super().__init__(error.message)
        self.opensandbox_code = opensandbox_code
        self.error = error


def admit(route: Route, headers: Mapping[bytes, bytes], directory: Directory) -> Located:
    """The sandbox of `route`, when the request may use it. Raises `Refused` (401) or the directory's TalonError."""
    bearer = _bearer(headers.get(b"authorization", b""))
    keys = [value.decode("latin-1") for value in (headers.get(b"open-sandbox-api-key"), bearer) if value]
    for key in keys:
        if (tenant := directory.tenant(key)) is not None:
            return directory.locate(route.sandbox, tenant)
    try:
        located = directory.locate(route.sandbox, None)
    except TalonError as error:
        raise _unauthorized() from error
    tokens = [headers[name] for name in _TOKEN_FIELDS if name in headers]
    if _any_equal([*tokens, bearer], located.token) or _signed(route, located):
        return located
    raise _unauthorized()


def _signed(route: Route, located: Located) -> bool:
    signed = route.signed
    return signed is not None and signed.sandbox == located.id and holds(signed, located.token, time.time())


def _any_equal(given: list[bytes], token: str) -> bool:
    expected = token.encode()
    return any(hmac.compare_digest(value, expected) for value in given if value)


def _bearer(value: bytes) -> bytes:
    return value[7:].strip() if value[:7].lower() == b"bearer " else b""


def _unauthorized() -> Refused:
    remedy = "Send an API key, every entry of the endpoint's 'headers', or use a signed address that has not expired."
    error = TalonError("unauthorized", "This sandbox needs its token or an API key.", remedy=remedy)
    return Refused("MISSING_OR_INVALID_SECURE_ACCESS", error)
