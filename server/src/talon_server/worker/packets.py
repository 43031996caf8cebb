"""Hears of the packets that the walls denied, and notes each as a decision of its sandbox.

The walls log a bounded number a second to an NFLOG group; this listens to it. Called by `host`.
"""

import asyncio
import logging
import os
import socket
import struct
import time
from collections.abc import Callable
from ipaddress import IPv4Address

from talon_server.egress.decisions import Decision, Decisions
from talon_server.egress.nflog import Logged, parse, subscribe

log = logging.getLogger(__name__)

_NETFILTER = 12
_BUFFER = 1 << 20
_ERROR = 2
WhoIs = Callable[[IPv4Address], str | None]
"""The sandbox that has an address, None when nobody has."""
NamesOf = Callable[[IPv4Address, IPv4Address], str]
"""The name under which a sandbox (by its address) learnt another address; empty when it did not ask."""


class PacketLog:
    """The subscription to one group."""

    def __init__(self, group: int, decisions: Decisions, who: WhoIs, name_of: NamesOf) -> None:
        self._group = group
        self._decisions = decisions
        self._who = who
        self._name_of = name_of
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Begin to listen; a host without NFLOG only loses the log of packets, and is told so."""
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER)
        try:
            link.bind((0, 0))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            for message in subscribe(self._group):
                link.send(message)
                _check(link.recv(4096))
        except OSError as error:
            link.close()
            log.warning("denied packets are not logged: %s", error)
            return
        link.setblocking(False)
        self._socket = link
        asyncio.get_running_loop().add_reader(link, self._read)

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(65536)
        except OSError:
            return  # nothing there, or more than the buffer held: the loss is of log lines only
        for logged in parse(data):
            self._note(logged)

    def _note(self, logged: Logged) -> None:
        sandbox = self._who(logged.source)
        if sandbox is None:
            return
        reason = logged.prefix.partition(":")[2]
        rule = int(reason) if reason.isdigit() else None
        self._decisions.note(
            Decision(
                0,
                time.time(),
                sandbox,
                False,
                "packet",
                name=self._name_of(logged.source, logged.destination),
                address=str(logged.destination),
                port=logged.port,
                protocol=logged.protocol,
                rule=rule,
                reason="rule" if rule is not None else reason,
            )
        )

    def close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None


def _check(answer: bytes) -> None:
    _, kind = struct.unpack_from("=IH", answer)
    if kind == _ERROR and (number := struct.unpack_from("=i", answer, 16)[0]) != 0:
        raise OSError(-number, os.strerror(-number))
