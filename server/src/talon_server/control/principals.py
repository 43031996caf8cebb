"""Who asks: the key's owner as every service sees it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """`tenant` owns what is made; `admin` sees the host's own affairs."""

    key_id: str
    tenant: str
    name: str
    admin: bool = False


SYSTEM = Principal("", "default", "system", admin=True)
