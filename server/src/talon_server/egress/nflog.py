"""Netlink messages of NFLOG, as bytes: how a group is subscribed and what a logged packet tells. No sockets here.

Source: linux/netfilter/nfnetlink_log.h and nfnetlink.h (uapi).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

_SUBSYSTEM = 4
_PACKET, _CONFIG = (_SUBSYSTEM << 8) | 0, (_SUBSYSTEM << 8) | 1
_REQUEST, _ACK = 1, 4
_BIND = 1
_COPY_PACKET = 2
_HEADER, _GENERIC = struct.Struct("=IHHII"), struct.Struct(">BBH")
_COPIED_BYTES = 64
_PAYLOAD, _PREFIX = 9, 10
_PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp"}


@dataclass(frozen=True, slots=True)
class Logged:
    """One packet that a rule logged: `prefix` is the rule's word for why."""

    prefix: str
    source: IPv4Address
    destination: IPv4Address
    protocol: str
    port: int


def subscribe(group: int) -> list[bytes]:
    """The messages that ask for a group's packets, their first bytes only."""
    mode = struct.pack(">IBx", _COPIED_BYTES, _COPY_PACKET)
    return [
        _message(group, struct.pack("=HHB3x", 5, 1, _BIND)),
        _message(group, struct.pack("=HH", 4 + len(mode), 2) + mode + b"\0\0"),
    ]


def parse(data: bytes) -> Iterator[Logged]:
    """The packets in one datagram; anything else in it is passed over."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            return
        if kind == _PACKET:
            logged = _logged(data[at + _HEADER.size + _GENERIC.size : at + length])
            if logged is not None:
                yield logged
        at += (length + 3) & ~3


def _message(group: int, attributes: bytes) -> bytes:
    body = _GENERIC.pack(0, 0, group) + attributes
    return _HEADER.pack(_HEADER.size + len(body), _CONFIG, _REQUEST | _ACK, 0, 0) + body


def _logged(attributes: bytes) -> Logged | None:
    found = dict(_attributes(attributes))
    packet, prefix = found.get(_PAYLOAD, b""), found.get(_PREFIX, b"")
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    header = (packet[0] & 0xF) * 4
    protocol = _PROTOCOLS.get(packet[9], str(packet[9]))
    ports = packet[header : header + 4]
    port = struct.unpack(">HH", ports)[1] if protocol in ("tcp", "udp") and len(ports) == 4 else 0
    source, destination = IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
    return Logged(prefix.rstrip(b"\0").decode(errors="replace"), source, destination, protocol, port)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += (length + 3) & ~3
