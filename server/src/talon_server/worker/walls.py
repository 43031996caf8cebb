"""The walls between sandboxes and everything else: one nftables table per server.

Packets from a sandbox enter by its own interface, may carry only its own address, and go through its own chain, whose
rules `egress.chains` writes from its policy. Nothing may enter a sandbox but replies; sandboxes reach of the host its
resolver alone. Every change is one transaction, so there is no moment in which a wall is open.
"""

import time
from collections.abc import Iterable, Mapping

from talon_server.egress import chains
from talon_server.egress.answers import Grant
from talon_server.egress.grants import GrantBook
from talon_server.egress.policy import CompiledPolicy, compile_policy
from talon_server.model.network import NetworkPolicy
from talon_server.worker.nft import Nft
from talon_server.worker.slots import Plan, Slot

CONNECTIONS = 4096
"""How many connections one sandbox may have tracked at once, so that it cannot fill the host's table for all."""
QUESTIONS = "200/second burst 400 packets"
"""What of a sandbox's packets reaches the resolver: beyond it the server would do nothing else than read them."""
DEFAULT = NetworkPolicy()
_COMPILED_DEFAULT = compile_policy(DEFAULT)


class Walls:
    """The table of one server. `log_group` is the NFLOG group that denied packets are told to."""

    def __init__(self, plan: Plan, nft: Nft, log_group: int) -> None:
        self._plan = plan
        self._nft = nft
        self._table = f"talon_{plan.instance}"
        self.log_group = log_group
        self._generation = int(time.time()) & 0x3FFFFFFF
        self._policies: dict[int, NetworkPolicy] = {}
        self._compiled: dict[int, CompiledPolicy] = {}
        self._books: dict[int, GrantBook] = {}

    def open(self, slots: Mapping[Slot, NetworkPolicy]) -> None:
        """Make the table anew with these slots under their policies, in one transaction: sandboxes may be running."""
        table, plan = self._table, self._plan
        self._nft.run(
            [
                f"add table inet {table}",
                f"delete table inet {table}",
                f"add table inet {table}",
                *chains.base_sets(table),
                f"add set inet {table} own {{ type ifname . ipv4_addr; }}",
                f"add map inet {table} chains {{ type ifname : verdict; }}",
                f"add set inet {table} load {{ type ipv4_addr; size 65535; flags dynamic; }}",
                f"add set inet {table} questions {{ type ipv4_addr; size 65535; flags dynamic,timeout; timeout 1m; }}",
                f"add chain inet {table} forward {{ type filter hook forward priority filter; policy accept; }}",
                f"add chain inet {table} input {{ type filter hook input priority filter; policy accept; }}",
                f"add chain inet {table} output {{ type filter hook output priority filter; policy accept; }}",
                f"add chain inet {table} nat {{ type nat hook postrouting priority srcnat; policy accept; }}",
                f"add chain inet {table} dns {{ type nat hook prerouting priority dstnat; policy accept; }}",
                f"add chain inet {table} from_sandbox",
                *self._forward(),
                *self._host(),
                f"add rule inet {table} nat ip saddr {plan.network} ip daddr != {plan.network} masquerade",
                *(line for slot, policy in slots.items() for line in self._declare(slot, policy)),
            ]
        )
        self._policies = {slot.number: policy for slot, policy in slots.items()}

    def _forward(self) -> list[str]:
        table, net, veths = self._table, self._plan.network, self._veths
        return [
            f"add rule inet {table} forward iifname {veths} goto from_sandbox",
            f"add rule inet {table} forward oifname {veths} ct state established,related accept",
            f"add rule inet {table} forward oifname {veths} drop",
            f"add rule inet {table} from_sandbox iifname . ip saddr != @own drop",
            f"add rule inet {table} from_sandbox meta nfproto ipv6 drop",
            f"add rule inet {table} from_sandbox ip daddr {net} drop",
            f"add rule inet {table} from_sandbox ct state new add @load {{ ip saddr ct count over {CONNECTIONS} }} drop",
            f"add rule inet {table} from_sandbox iifname vmap @chains",
            f"add rule inet {table} from_sandbox drop",
        ]

    def _host(self) -> list[str]:
        gateway, network = self._plan.gateway, self._plan.network
        dns = "meta l4proto { tcp, udp } th dport 53"
        rules = {
            "input": (
                "iifname . ip saddr != @own drop",
                f"{dns} update @questions {{ ip saddr limit rate over {QUESTIONS} }} drop",
                "ct state established,related accept",
                f"ip daddr {gateway} {dns} accept",
                f"ip daddr {gateway} icmp type echo-request limit rate 20/second accept",
                "drop",
            ),
            "dns": (f"ip daddr != {gateway} {dns} dnat ip to {gateway}",),
        }
        return [
            f"add rule inet {self._table} {chain} iifname {self._veths} {rule}"
            for chain, lines in rules.items()
            for rule in lines
        ] + [
            f"add rule inet {self._table} output oifname {self._veths} ct state new ip daddr {network} skuid != 0 drop"
        ]

    @property
    def _veths(self) -> str:
        return f'"{self._plan.veth_prefix}*"'

    def add(self, slot: Slot) -> None:
        """A new slot: its own address, its chain with the default policy."""
        self._nft.run(self._declare(slot, DEFAULT))
        self._policies[slot.number] = DEFAULT

    def _declare(self, slot: Slot, policy: NetworkPolicy) -> list[str]:
        table = self._table
        return [
            f'add element inet {table} own {{ "{slot.veth}" . {slot.address} }}',
            *chains.declare(table, slot.number),
            *self._fill(slot, policy),
            f'add element inet {table} chains {{ "{slot.veth}" : jump {chains.chain_name(slot.number)} }}',
        ]

    def apply(self, slot: Slot, policy: NetworkPolicy) -> None:
        """Put a policy in force, for existing connections too; nothing to do when it is in force already."""
        if self._policies.get(slot.number) == policy:
            return
        filled = self._fill(slot, policy)
        again = self.book(slot).reissue(self.compiled(slot), time.monotonic())
        self._nft.run(
            [
                *filled,
                f"flush set inet {self._table} {chains.grants_name(slot.number)}",
                *chains.grant(self._table, slot.number, again),
            ]
        )
        self._policies[slot.number] = policy

    def grant(self, slot: Slot, grants: Iterable[Grant]) -> None:
        """Open what the resolver granted, before it answers."""
        admitted = self.book(slot).admit(grants, time.monotonic())
        self._nft.run(list(chains.grant(self._table, slot.number, admitted)))

    def reset(self, slot: Slot) -> None:
        """Make a slot as it was when new; what its last sandbox had open is closed."""
        self._books.pop(slot.number, None)
        if self._policies.get(slot.number) != DEFAULT:
            flush = f"flush set inet {self._table} {chains.grants_name(slot.number)}"
            self._nft.run([*self._fill(slot, DEFAULT), flush])
            self._policies[slot.number] = DEFAULT

    def book(self, slot: Slot) -> GrantBook:
        """What was granted to the sandbox in a slot."""
        return self._books.setdefault(slot.number, GrantBook())

    def compiled(self, slot: Slot) -> CompiledPolicy:
        """The policy in force, for decisions on names."""
        return self._compiled.get(slot.number, _COMPILED_DEFAULT)

    def close(self) -> None:
        """Take the table away: for tests and uninstalling."""
        self._nft.run([f"add table inet {self._table}", f"delete table inet {self._table}"])

    def _fill(self, slot: Slot, policy: NetworkPolicy) -> list[str]:
        self._generation += 1
        compiled = self._compiled[slot.number] = _COMPILED_DEFAULT if policy == DEFAULT else compile_policy(policy)
        return list(chains.fill(self._table, slot.number, compiled, self._generation, self.log_group))
