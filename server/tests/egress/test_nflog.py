"""Packets that the walls logged, read from their netlink messages."""

import struct

from talon_server.egress.nflog import parse, subscribe


def datagram(prefix: bytes, packet: bytes) -> bytes:
    def attribute(kind: int, value: bytes) -> bytes:
        padded = value + b"\0" * (-len(value) % 4)
        return struct.pack("=HH", 4 + len(value), kind) + padded

    body = struct.pack(">BBH", 2, 0, 97) + attribute(10, prefix + b"\0") + attribute(9, packet)
    return struct.pack("=IHHII", 16 + len(body), 4 << 8, 0, 0, 0) + body


TCP = bytes([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 1, 0, 2, 1, 1, 1, 1]) + struct.pack(">HH", 4000, 443)


def test_a_logged_packet_tells_where_it_wanted_to_go() -> None:
    [logged] = parse(datagram(b"3:default", TCP))
    assert (logged.prefix, str(logged.source), str(logged.destination)) == ("3:default", "10.1.0.2", "1.1.1.1")
    assert (logged.protocol, logged.port) == ("tcp", 443)


def test_several_messages_in_one_datagram() -> None:
    data = datagram(b"a", TCP)
    padded = data + b"\0" * (-len(data) % 4)
    assert [logged.prefix for logged in parse(padded + datagram(b"b", TCP))] == ["a", "b"]


def test_noise_is_passed_over() -> None:
    assert list(parse(b"")) == []
    assert list(parse(b"\xff" * 40)) == []
    assert list(parse(datagram(b"x", b"\x60" + bytes(39)))) == []
    assert list(parse(datagram(b"x", TCP)[:-6])) == []


def test_a_subscription_is_whole_messages() -> None:
    for message in subscribe(97):
        assert struct.unpack_from("=I", message)[0] == len(message)
