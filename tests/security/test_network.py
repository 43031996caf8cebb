"""T4: code in a sandbox reaches the host, its API, other sandboxes, private networks or the cloud's metadata service."""

import json
import socket
import subprocess
from collections.abc import Iterator

import pytest

from talon_sandbox import Sandbox
from tests.conftest import Maker
from tests.framework.platform import Platform
from tests.framework.waiting import until
from tests.security.conftest import Attack

CONNECT = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def reach(address):
    try:
        socket.create_connection((address, int(sys.argv[1])), timeout=3).close()
        return address
    except OSError:
        return ""
with ThreadPoolExecutor(16) as threads:
    print("open:", *filter(None, threads.map(reach, sys.argv[2:])))
"""


def reached(attack: Attack, port: int, *addresses: str) -> list[str]:
    """Those of the addresses that answer on a port."""
    said = attack(["python3", "-c", CONNECT, str(port), *addresses], check=True).stdout.split()
    assert said[0] == "open:"
    return said[1:]


def own_addresses() -> list[str]:
    listed = json.loads(
        subprocess.run(["ip", "-json", "-4", "addr"], capture_output=True, text=True, check=True).stdout
    )
    return [entry["local"] for link in listed for entry in link["addr_info"]]


@pytest.fixture
def open_port() -> Iterator[int]:
    """A port of the host that listens on every address."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        port: int = server.getsockname()[1]
        yield port


def test_no_address_of_the_host_answers(attack: Attack, open_port: int) -> None:
    assert reached(attack, open_port, *own_addresses()) == []


def test_the_api_is_not_reached(attack: Attack, platform: Platform) -> None:
    gateway = attack("awk '/nameserver/ {print $2}' /etc/resolv.conf").stdout.strip()
    assert reached(attack, platform.port, gateway, *own_addresses()) == []


def test_metadata_services(attack: Attack) -> None:
    assert reached(attack, 80, "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16") == []


def test_private_ranges(attack: Attack) -> None:
    addresses = ("10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "224.0.0.1", "255.255.255.255")
    assert reached(attack, 80, *addresses) == []


def test_other_sandboxes(attack: Attack, make: Maker) -> None:
    victim = make()
    victim.spawn("python3 -m http.server 8000")
    until(lambda: any(port.port == 8000 for port in victim.ports()), "the victim listens")
    address = victim.run("hostname -I").stdout.split()[0]
    assert reached(attack, 8000, address) == []


FORGE = """
import fcntl, socket, struct
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
name, address = b"eth0".ljust(16, b"\\0"), socket.inet_aton("10.99.99.99")
requests = {
    "address": (0x8916, name + struct.pack("=HH4s8x", socket.AF_INET, 0, address)),
    "hardware": (0x8924, name + struct.pack("=H6s8x", 1, b"\\2\\0\\0\\0\\0\\1")),
    "down": (0x8914, name + struct.pack("=H14x", 0)),
}
for kind, (number, argument) in requests.items():
    try:
        fcntl.ioctl(link, number, argument)
        print(kind, "done")
    except PermissionError:
        print(kind, "refused")
"""


def test_addresses_cannot_be_forged(attack: Attack) -> None:
    assert attack(["python3", "-c", FORGE]).stdout == "address refused\nhardware refused\ndown refused\n"


@pytest.mark.parametrize("kind", ["socket.AF_PACKET, socket.SOCK_RAW", "socket.AF_INET, socket.SOCK_RAW, 1"])
def test_raw_sockets(attack: Attack, kind: str) -> None:
    assert attack(["python3", "-c", f"import socket; socket.socket({kind})"]).exit_code != 0


@pytest.mark.parametrize("family", [38, 40, 16, 17, 29, 31])
def test_families_of_sockets_that_have_no_use_here(attack: Attack, family: int) -> None:
    """AF_ALG, AF_VSOCK, AF_NETLINK beyond routes, AF_PACKET, AF_CAN, AF_BLUETOOTH."""
    code = f"import socket; s = socket.socket({family}, socket.SOCK_RAW, {12 if family == 16 else 0}); s.bind((0, 0))"
    assert attack(["python3", "-c", code]).exit_code != 0


def test_abstract_sockets_of_the_host_are_not_seen(attack: Attack) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0talon-test-abstract")
        server.listen()
        code = "import socket; socket.socket(socket.AF_UNIX).connect('\\0talon-test-abstract')"
        assert attack(["python3", "-c", code]).exit_code != 0


def test_version_six_is_closed(attack: Attack) -> None:
    assert attack("cat /proc/net/if_inet6 2>/dev/null | grep -v ' lo$' | wc -l").stdout.strip() == "0"


def test_a_sealed_sandbox_has_no_names(make: Maker) -> None:
    sandbox: Sandbox = make(network={"mode": "sealed"})
    assert sandbox.run("getent ahosts example.com", timeout=60).exit_code != 0
    assert sandbox.run(["python3", "-c", CONNECT, "80", "93.184.216.34"], timeout=60).stdout == "open:\n"


def test_a_flood_of_questions_is_cut_before_it_reaches_the_resolver(attack: Attack) -> None:
    code = """
import socket, time
resolver = open("/etc/resolv.conf").read().split()[1]
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.settimeout(5)
link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
question = bytes.fromhex("123401000001000000000000") + b"\\x03foo\\x07invalid\\x00\\x00\\x01\\x00\\x01"
begun = time.monotonic()
while time.monotonic() < begun + 2:
    link.sendto(question, (resolver, 53))
answers, most = 0, 400 + 200 * (time.monotonic() - begun + 1)
try:
    while link.recv(4096):
        answers += 1
except TimeoutError:
    pass
print(0 < answers <= most, answers, most)
"""
    assert attack(["python3", "-c", code]).stdout.startswith("True")
