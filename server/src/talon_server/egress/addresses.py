"""Which addresses are never the public Internet, however a name or a packet spells them.

Read by the policy and by the walls. Source: the IANA special-purpose address registries (RFC 6890 and its
updates) and the well-known metadata addresses of the clouds. An address that carries another one inside
(IPv4-mapped, NAT64, 6to4, Teredo) is judged by both.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

SPECIAL_V4 = tuple(
    IPv4Network(net)
    for net in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
METADATA_V4 = (IPv4Address("169.254.169.254"), IPv4Address("100.100.100.200"), IPv4Address("168.63.129.16"))
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_PUBLIC_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(IPv6Network(net) for net in ("2001:db8::/32", "2001::/23", "3fff::/20"))


def embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one carries, when it is a mapped, NAT64, 6to4 or Teredo address."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in net for net in _NAT64):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def is_special(address: Address) -> bool:
    """True for every address that is not plainly public: private, loopback, link-local, CGNAT, metadata…"""
    if isinstance(address, IPv4Address):
        return address in METADATA_V4 or any(address in net for net in SPECIAL_V4)
    if embedded(address) is not None:
        return True
    return address not in _PUBLIC_V6 or any(address in net for net in _SPECIAL_V6)


def within_special(network: Network) -> bool:
    """True when a network lies wholly inside one special range: naming it opens it, `0.0.0.0/0` does not."""
    if isinstance(network, IPv4Network):
        if network.prefixlen == 32:
            return is_special(network.network_address)
        return any(network.subnet_of(net) for net in SPECIAL_V4)
    return is_special(network.network_address) and is_special(network.broadcast_address)


@lru_cache(maxsize=4096)
def parse_network(target: str) -> Network | None:
    """`10.0.0.0/8`, `1.2.3.4` or an IPv6 form as a network; None when the target is a name."""
    try:
        return ip_network(target, strict=False)
    except ValueError:
        return None


def parse_address(text: str) -> Address | None:
    """An address, or None."""
    try:
        return ip_address(text)
    except ValueError:
        return None
