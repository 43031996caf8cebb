"""OpenSandbox's egress policy and the platform's one policy model, each read as the other.

Pure. Used at create and by the egress API. A policy object without `defaultAction` denies; a sandbox created
without a policy object keeps the operator's default.
"""

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

from talon_server.api.v1.schemas import Policy, Rule
from talon_server.model import network
from talon_server.model.network import Action, Mode, NetworkPolicy


class BadTarget(ValueError):
    """A rule's target is neither a name, a wildcard, an address nor a CIDR."""


def to_model(policy: Policy) -> NetworkPolicy:
    """Raises `BadTarget`. OpenSandbox rules have no ports or protocols: they cover all."""
    default = Action(policy.default_action or "deny")
    return _moded(NetworkPolicy(Mode.OPEN, _rules(policy.egress), default))


def from_model(policy: NetworkPolicy) -> dict[str, Any]:
    """Rules with ports or protocol (set through /v2) are shown by their target."""
    rules = [{"action": rule.action.value, "target": rule.target} for rule in policy.rules]
    return {"defaultAction": policy.default.value, "egress": rules}


def status(policy: NetworkPolicy) -> dict[str, Any]:
    """What GET /policy answers. Enforcement is on the host, for names and addresses alike."""
    mode = "enforcing" if policy.rules else ("allow_all" if policy.default is Action.ALLOW else "deny_all")
    return {"status": "ok", "mode": mode, "enforcementMode": "dns+nft", "policy": from_model(policy)}


def merged(policy: NetworkPolicy, incoming: list[Rule]) -> NetworkPolicy:
    """PATCH: the incoming rules come first and replace those of the same target; the first of a target wins."""
    rules: dict[str, network.Rule] = {}
    for rule in _rules(incoming):
        rules.setdefault(_key(rule.target), rule)
    kept = [rule for rule in policy.rules if _key(rule.target) not in rules]
    return _moded(replace(policy, rules=(*rules.values(), *kept)))


def without(policy: NetworkPolicy, targets: Iterable[str]) -> NetworkPolicy:
    """DELETE: targets that have no rule are ignored."""
    gone = {_key(target) for target in targets}
    return _moded(replace(policy, rules=tuple(rule for rule in policy.rules if _key(rule.target) not in gone)))


def _moded(policy: NetworkPolicy) -> NetworkPolicy:
    if policy.default is Action.ALLOW:
        return replace(policy, mode=Mode.OPEN)
    return replace(policy, mode=Mode.ALLOWLIST if policy.rules else Mode.SEALED)


def _rules(rules: Iterable[Rule]) -> tuple[network.Rule, ...]:
    return tuple(network.Rule(Action(rule.action), _checked(rule.target)) for rule in rules)


def _checked(target: str) -> str:
    name = target[2:] if target.startswith("*.") else target
    if _is_address(target) or (name and len(name) <= 253 and all(map(_is_label, name.rstrip(".").split(".")))):
        return target
    raise BadTarget(f"egress target {target!r} must be a host name, '*.suffix', an IP address or a CIDR.")


def _is_address(target: str) -> bool:
    try:
        ip_network(target, strict=False)
    except ValueError:
        return False
    return True


def _is_label(label: str) -> bool:
    plain = label.replace("-", "").replace("_", "")
    return bool(plain) and len(label) <= 63 and plain.isalnum()


def _key(target: str) -> str:
    return target.lower().rstrip(".")
