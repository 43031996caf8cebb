"""One sandbox's network policy, compiled: the decisions of the resolver and the walls, without their effects.

`compile_policy` is called at create and at each change; the resolver asks `name(...)` for each question and
the walls are written from `plan()`. Semantics: rules in order, the first that matches decides; special
addresses (see `addresses`) stay closed unless a rule names a network inside them.
Source of the rule semantics: OpenSandbox egress API (targets, `*.suffix` without its apex, first match).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from talon_server.egress.addresses import Address, Network, is_special, parse_network, within_special
from talon_server.model.network import Action, Mode, NetworkPolicy, Rule

ALL_PORTS = (1, 65535)
PROTOCOLS = ("tcp", "udp")


@dataclass(frozen=True, slots=True)
class Opening:
    """Ports of one protocol that are open towards an address: `low` to `high`, both included."""

    protocol: str
    low: int
    high: int


EVERYTHING = tuple(Opening(protocol, *ALL_PORTS) for protocol in PROTOCOLS)


@dataclass(frozen=True, slots=True)
class NameVerdict:
    """May this name be resolved, which ports it opens (empty with `allowed` never), and which rule said so.

    `rule` is the rule's index in the policy, or None when the default decided. `listed` tells that the
    answer's addresses must be fed to the walls (the default would not let them through).
    """

    allowed: bool
    openings: tuple[Opening, ...]
    rule: int | None
    listed: bool


@dataclass(frozen=True, slots=True)
class AddressRule:
    """One rule on addresses for the walls, in the policy's order. `special` = lies inside a special range."""

    action: Action
    network: Network
    openings: tuple[Opening, ...]
    special: bool
    index: int


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """The policy in the form that decisions need. `default_allow` concerns public addresses alone."""

    sealed: bool
    default_allow: bool
    exact: dict[str, tuple[tuple[int, Rule], ...]]
    suffixes: dict[str, tuple[tuple[int, Rule], ...]]
    addresses: tuple[AddressRule, ...]

    def name(self, name: str) -> NameVerdict:
        """Decide one name (lower case or not, final dot or not)."""
        if self.sealed:
            return NameVerdict(False, (), None, False)
        return self._judge(sorted(self._matching(canonical(name)), key=lambda pair: pair[0]))

    def _matching(self, name: str) -> Iterable[tuple[int, Rule]]:
        yield from self.exact.get(name, ())
        labels = name.split(".")
        for cut in range(1, len(labels)):
            yield from self.suffixes.get(".".join(labels[cut:]), ())
        yield from self.suffixes.get("", ())

    def _judge(self, matching: list[tuple[int, Rule]]) -> NameVerdict:
        open_ports: list[Opening] = []
        closed: list[Opening] = []
        first: int | None = None
        for index, rule in matching:
            first = index if first is None else first
            ports = openings(rule)
            if rule.action is Action.DENY and ports == EVERYTHING:
                break
            if rule.action is Action.DENY:
                closed.extend(ports)
                continue
            open_ports.extend(subtract(ports, closed))
            if ports == EVERYTHING:
                break
        else:
            if self.default_allow:
                if closed:
                    open_ports.extend(subtract(EVERYTHING, closed))
                else:
                    return NameVerdict(True, EVERYTHING, first, bool(open_ports))
        return NameVerdict(bool(open_ports), tuple(open_ports), first, bool(open_ports))

    def answer(self, address: Address) -> bool:
        """May an allowed name resolve to this address? Special ones only when a rule names them (rebinding)."""
        if not is_special(address):
            return True
        return any(
            rule.special and rule.action is Action.ALLOW and address in rule.network
            for rule in self.addresses
            if rule.network.version == address.version
        )


def compile_policy(policy: NetworkPolicy) -> CompiledPolicy:
    """Index the rules of a policy; linear in their number (1,000 rules: about a millisecond)."""
    exact: dict[str, list[tuple[int, Rule]]] = {}
    suffixes: dict[str, list[tuple[int, Rule]]] = {}
    addresses: list[AddressRule] = []
    for index, rule in enumerate(policy.rules):
        network = parse_network(rule.target)
        if network is not None:
            addresses.append(AddressRule(rule.action, network, openings(rule), within_special(network), index))
        elif rule.target == "*":
            suffixes.setdefault("", []).append((index, rule))
        elif rule.target.startswith("*."):
            suffixes.setdefault(canonical(rule.target[2:]), []).append((index, rule))
        else:
            exact.setdefault(canonical(rule.target), []).append((index, rule))
    return CompiledPolicy(
        sealed=policy.mode is Mode.SEALED,
        default_allow=policy.mode is not Mode.SEALED and policy.default is Action.ALLOW,
        exact={name: tuple(rules) for name, rules in exact.items()},
        suffixes={name: tuple(rules) for name, rules in suffixes.items()},
        addresses=tuple(addresses),
    )


def openings(rule: Rule) -> tuple[Opening, ...]:
    """The ports a rule speaks of, for each protocol."""
    protocols = (rule.protocol,) if rule.protocol else PROTOCOLS
    ranges = rule.ports or (ALL_PORTS,)
    return tuple(Opening(protocol, low, high) for protocol in protocols for low, high in ranges)


def subtract(ports: Iterable[Opening], closed: Iterable[Opening]) -> tuple[Opening, ...]:
    """The given openings less what is closed."""
    left = list(ports)
    for hole in closed:
        left = [piece for opening in left for piece in _without(opening, hole)]
    return tuple(left)


def _without(opening: Opening, hole: Opening) -> Iterable[Opening]:
    if opening.protocol != hole.protocol or hole.high < opening.low or hole.low > opening.high:
        yield opening
        return
    if opening.low < hole.low:
        yield Opening(opening.protocol, opening.low, hole.low - 1)
    if hole.high < opening.high:
        yield Opening(opening.protocol, hole.high + 1, opening.high)


def canonical(name: str) -> str:
    """A name as it is compared: lower case, no final dot, international labels in their ASCII form."""
    name = name.rstrip(".").lower()
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        return name
