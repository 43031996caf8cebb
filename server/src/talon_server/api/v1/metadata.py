"""Metadata of the OpenSandbox dialect: Kubernetes' label rules, merge patches, and the doubly encoded filter.

Pure. Called by the sandbox handlers.
"""

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
_RESERVED = "opensandbox.io/"


class BadLabel(ValueError):
    """A metadata key or value breaks the rules; the text names it."""


class BadFilter(ValueError):
    """The `metadata` query cannot be read."""


def check(metadata: Mapping[str, str | None]) -> None:
    """Raises `BadLabel` for the first key or value that may not be set."""
    for key, value in metadata.items():
        if key.startswith(_RESERVED):
            raise BadLabel(f"metadata key {key!r}: the prefix 'opensandbox.io/' is reserved; choose another.")
        prefix, slash, name = key.rpartition("/")
        if not _NAME.match(name) or (slash and not _PREFIX.match(prefix)):
            raise BadLabel(
                f"metadata key {key!r} must be 1-63 letters, digits, '-', '_' or '.', with an optional DNS prefix."
            )
        if value and not _NAME.match(value):
            raise BadLabel(f"metadata value {value!r} of {key!r} must be at most 63 letters, digits, '-', '_' or '.'.")


def merge(current: Mapping[str, str], patch: Mapping[str, str | None]) -> dict[str, str]:
    """RFC 7396 on one level: null deletes, anything else sets."""
    merged = {**current, **patch}
    return {key: value for key, value in merged.items() if value is not None}


def parse_filter(query: str) -> dict[str, str]:
    """`k=v&k2=v2`, already decoded once by the query string's own decoding; all must match."""
    if not query.strip():
        return {}
    try:
        return dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
    except ValueError as error:
        raise BadFilter("metadata must be 'key=value' pairs joined by '&', percent-encoded as one value.") from error
