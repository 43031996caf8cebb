"""A small Internet for the tests: a network namespace with addresses that look public and private, reached by routes.

It answers on TCP port 7000 (and 7001) of each address with the address it was asked at, and resolves names on a port
of its own on the host's loopback.
"""

import fcntl
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.rcode
import dns.rrset

PUBLIC, OTHER, PRIVATE, METADATA = "11.99.0.10", "11.99.0.20", "172.30.99.10", "169.254.169.254"
ADDRESSES = (PUBLIC, OTHER, PRIVATE, METADATA)
_NAMES: Mapping[str, str] = {"good.test.": PUBLIC, "other.test.": OTHER, "inside.test.": PRIVATE}
_NETNS, _LINK = "tlinet", "tlinet0"
_SERVE = """
import socket, threading
def serve(port):
    listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", port)); listener.listen(64)
    while True:
        link, _ = listener.accept()
        link.sendall(link.getsockname()[0].encode() + b"\\n"); link.close()
threading.Thread(target=serve, args=(7001,), daemon=True).start()
print("ready", flush=True)
serve(7000)
"""


@contextmanager
def an_internet() -> Iterator[None]:
    """Routes to the namespace as long as the block lasts, one at a time on a host; metadata's address is routed there."""
    with Path("/run/talon-test-internet.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _opened():
            yield


@contextmanager
def _opened() -> Iterator[None]:
    _remove()
    _ip(f"netns add {_NETNS}", f"link add {_LINK} type veth peer name eth0 netns {_NETNS}", f"link set {_LINK} up")
    _ip(f"addr add 11.98.0.1/32 dev {_LINK}")
    inside = [f"addr add {address}/32 dev eth0" for address in ADDRESSES]
    _ip("link set eth0 up", *inside, "route add 11.98.0.1 dev eth0", "route add default via 11.98.0.1", netns=_NETNS)
    _ip(*(f"route add {address}/32 dev {_LINK}" for address in ADDRESSES))
    command = ["ip", "netns", "exec", _NETNS, "python3", "-c", _SERVE]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                assert server.stdout.readline() == "ready\n"
                yield
            finally:
                server.kill()
    finally:
        _remove()


@contextmanager
def names() -> Iterator[str]:
    """A name server on the loopback; gives its address as the worker takes it (`address#port`)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=_resolve, args=(link,))
        thread.start()
        try:
            yield f"127.0.0.1#{link.getsockname()[1]}"
        finally:
            link.sendto(b"", link.getsockname())
            thread.join()


def _resolve(link: socket.socket) -> None:
    while True:
        wire, source = link.recvfrom(4096)
        if not wire:
            return
        query = dns.message.from_wire(wire)
        answer = dns.message.make_response(query, recursion_available=True)
        address = _NAMES.get(query.question[0].name.to_text())
        if address is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        else:
            answer.answer.append(dns.rrset.from_text(query.question[0].name, 60, "IN", "A", address))
        link.sendto(answer.to_wire(), source)


def _remove() -> None:
    subprocess.run(["ip", "link", "del", _LINK], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "del", _NETNS], check=False, capture_output=True)


def _ip(*lines: str, netns: str = "") -> None:
    where = ["-n", netns] if netns else []
    subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(lines), text=True, check=True)
