"""Signed addresses of one port of one sandbox, good until they expire.

Made by the OpenSandbox dialect (`expires=`), checked by `access`. The token is
`{id}-{port}-{expires in base 36}-{signature}`; the signature is HMAC-SHA256 under the sandbox's own token, cut to
160 bits, so it dies with the token and can never open another sandbox or port.
"""

import hashlib
import hmac
from dataclasses import dataclass

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SIGNATURE_HEX = 40


@dataclass(frozen=True, slots=True)
class SignedRoute:
    """A token taken apart, not yet believed. `expires` is Unix seconds."""

    sandbox: str
    port: int
    expires: int
    signature: str


def make_token(sandbox: str, port: int, expires: int, secret: str) -> str:
    return f"{sandbox}-{port}-{_base36(expires)}-{_signature(sandbox, port, expires, secret)}"


def parse_token(text: str) -> SignedRoute | None:
    """None when `text` does not have the shape of a token (for example an unsigned `{id}-{port}`)."""
    parts = text.rsplit("-", 3)
    if len(parts) != 4 or len(parts[3]) != _SIGNATURE_HEX or not parts[0] or len(parts[2]) > 13:
        return None
    try:
        return SignedRoute(parts[0], int(parts[1]), int(parts[2], 36), parts[3])
    except ValueError:
        return None


def holds(route: SignedRoute, secret: str, now: float) -> bool:
    """Whether the signature is ours and the time is not over; compared in constant time."""
    expected = _signature(route.sandbox, route.port, route.expires, secret)
    genuine = hmac.compare_digest(expected.encode(), route.signature.encode())
    return genuine and now < route.expires


def _signature(sandbox: str, port: int, expires: int, secret: str) -> str:
    said = f"talon endpoint v1\n{sandbox}\n{port}\n{expires}\n".encode()
    return hmac.new(secret.encode(), said, hashlib.sha256).hexdigest()[:_SIGNATURE_HEX]


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
    return digits or "0"
