"""One sandbox's policy as nftables commands: pure text, applied by the worker in one transaction.

The worker's table has, for the sandbox in `slot`, a chain `sb<slot>` that packets *from* it jump to, and a set
`open<slot>` of what its resolver granted. Order of a chain: replies; connections already judged under this
generation; special ranges that a rule names; no other special range; resolvers that would hide names; rules on
addresses, in order; grants; the default. A change of policy is a new generation: every connection is judged again
with its next packet, and there is no moment in which everything is open.
Source of the syntax: nft(8).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from talon_server.egress.addresses import SPECIAL_V4
from talon_server.egress.answers import Grant
from talon_server.egress.policy import ALL_PORTS, EVERYTHING, AddressRule, CompiledPolicy, Opening
from talon_server.model.network import Action

DNS_OVER_HTTPS = (
    "1.0.0.1", "1.1.1.1", "1.1.1.2", "1.1.1.3", "8.8.4.4", "8.8.8.8", "9.9.9.9", "45.90.28.0/24", "45.90.30.0/24",
    "76.76.2.0/24", "94.140.14.0/24", "149.112.112.0/24", "185.228.168.0/24", "208.67.220.220", "208.67.222.222",
)  # fmt: skip
"""Public resolvers that answer over HTTPS or TLS at well-known addresses; closed where names are restricted."""


_LOGGED = "limit rate 20/second burst 40 packets"


def chain_name(slot: int) -> str:
    return f"sb{slot}"


def grants_name(slot: int) -> str:
    return f"open{slot}"


def base_sets(table: str) -> Iterator[str]:
    """The sets that all chains share, added once when the table is made."""
    yield f"add set inet {table} special {{ type ipv4_addr; flags interval; auto-merge; }}"
    yield f"add element inet {table} special {{ {', '.join(map(str, SPECIAL_V4))}, 100.100.100.200, 168.63.129.16 }}"
    yield f"add set inet {table} resolvers {{ type ipv4_addr; flags interval; auto-merge; }}"
    yield f"add element inet {table} resolvers {{ {', '.join(DNS_OVER_HTTPS)} }}"


def declare(table: str, slot: int) -> Iterator[str]:
    """The chain and the set of a slot; adding what is there changes nothing."""
    yield f"add chain inet {table} {chain_name(slot)}"
    yield (
        f"add set inet {table} {grants_name(slot)} "
        "{ type ipv4_addr . inet_proto . inet_service; flags interval,timeout; }"
    )


def fill(table: str, slot: int, policy: CompiledPolicy, generation: int, log_group: int) -> Iterator[str]:
    """Replace the chain's rules by those of `policy`; with `declare` and grants in one transaction."""
    chain = f"inet {table} {chain_name(slot)}"
    yield f"flush chain {chain}"
    for rule in rules(slot, policy, generation, log_group):
        yield f"add rule {chain} {rule}"


def rules(slot: int, policy: CompiledPolicy, generation: int, log_group: int) -> Iterator[str]:
    """The rules of one chain, first to last."""
    accept = f"ct mark set {generation} accept"
    deny = _Denial(slot, log_group)
    yield "ct direction reply accept"
    yield "ct state invalid drop"
    yield f"ct state established,related ct mark {generation} accept"
    if policy.sealed:
        yield from deny("", "sealed")
        return
    for rule in policy.addresses:
        if rule.special:
            yield from _address_rule(rule, accept, deny)
    yield from deny("ip daddr @special", "special")
    if not policy.default_allow or policy.exact or policy.suffixes:
        yield from deny("ip daddr @resolvers meta l4proto { tcp, udp } th dport { 443, 853 }", "resolver")
        yield from deny("meta l4proto { tcp, udp } th dport 853", "resolver")
    for rule in policy.addresses:
        if not rule.special:
            yield from _address_rule(rule, accept, deny)
    yield f"ip daddr . meta l4proto . th dport @{grants_name(slot)} {accept}"
    if policy.default_allow:
        yield accept
    else:
        yield from deny("", "default")


@dataclass(frozen=True, slots=True)
class _Denial:
    """Two rules: tell of some of the packets that match, drop all of them."""

    slot: int
    log_group: int

    def __call__(self, where: str, why: str | int) -> Iterator[str]:
        yield f'{where} {_LOGGED} log group {self.log_group} prefix "{self.slot}:{why}"'.strip()
        yield f"{where} drop".strip()


def grant(table: str, slot: int, grants: Iterable[Grant]) -> Iterator[str]:
    """Open what the resolver granted. Added, deleted and added again: so an element that was there lives on anew."""
    for one in grants:
        for opening in one.openings:
            element = f"{one.address} . {opening.protocol} . {_ports(opening)}"
            yield f"add element inet {table} {grants_name(slot)} {{ {element} timeout {one.life_s}s }}"
            yield f"delete element inet {table} {grants_name(slot)} {{ {element} }}"
            yield f"add element inet {table} {grants_name(slot)} {{ {element} timeout {one.life_s}s }}"


def remove(table: str, slot: int) -> Iterator[str]:
    """Empty a slot's chain and set, so that nothing of one sandbox is left for the next."""
    yield f"flush chain inet {table} {chain_name(slot)}"
    yield f"flush set inet {table} {grants_name(slot)}"


def _address_rule(rule: AddressRule, accept: str, deny: _Denial) -> Iterator[str]:
    if not isinstance(rule.network, IPv4Network):
        return  # sandboxes have no IPv6: nothing of it leaves, whatever a rule says
    for where in _places(rule):
        if rule.action is Action.ALLOW:
            yield f"{where} {accept}"
        else:
            yield from deny(where, rule.index)


def _places(rule: AddressRule) -> Iterator[str]:
    where = f"ip daddr {rule.network}"
    if rule.openings == EVERYTHING:
        yield where
        return
    for protocol in ("tcp", "udp"):
        ports = [_ports(opening) for opening in rule.openings if opening.protocol == protocol]
        if ports:
            yield f"{where} {protocol} dport {{ {', '.join(ports)} }}"


def _ports(opening: Opening) -> str:
    if (opening.low, opening.high) == ALL_PORTS:
        return "0-65535"
    return str(opening.low) if opening.low == opening.high else f"{opening.low}-{opening.high}"
