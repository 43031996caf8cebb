"""Identifiers: a prefix that tells the kind, then 24 hexadecimal digits of randomness."""

import secrets

SANDBOX = "sbx"
SNAPSHOT = "snp"
RECORDING = "rec"
KEY = "key"
REQUEST = "req"


def new(prefix: str) -> str:
    """A fresh identifier, for example `sbx_3f…` (96 random bits: no coordination needed)."""
    return f"{prefix}_{secrets.token_hex(12)}"
