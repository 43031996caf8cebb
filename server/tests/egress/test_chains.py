"""The nftables text of a policy, accepted by nft itself (`--check` changes nothing)."""

import shutil
import subprocess
from ipaddress import ip_address

import pytest

from talon_server.egress.answers import Grant
from talon_server.egress.chains import base_sets, declare, fill, grant, remove, rules
from talon_server.egress.policy import EVERYTHING, Opening, compile_policy
from talon_server.model.network import Action, Mode, NetworkPolicy, Rule

RULES = (
    Rule(Action.DENY, "evil.example"),
    Rule(Action.ALLOW, "10.0.0.0/24", ((80, 80), (90, 100)), "tcp"),
    Rule(Action.ALLOW, "*.good.example"),
    Rule(Action.DENY, "192.0.2.7"),
    Rule(Action.ALLOW, "1.0.0.0/8"),
    Rule(Action.ALLOW, "2001:db8::/32"),
)
POLICY = compile_policy(NetworkPolicy(Mode.ALLOWLIST, RULES, Action.DENY))


@pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")
def test_nft_accepts_every_command() -> None:
    granted = [
        Grant("g", ip_address("93.184.215.14"), EVERYTHING, 60),
        Grant("h", ip_address("93.184.215.15"), (Opening("tcp", 443, 443), Opening("udp", 1, 9)), 60),
    ]
    script = [
        "add table inet talon_check",
        *base_sets("talon_check"),
        *declare("talon_check", 3),
        *fill("talon_check", 3, POLICY, 7, 5),
        *grant("talon_check", 3, granted),
        *remove("talon_check", 3),
    ]
    check = ["nft", "--check", "-f", "-"]
    done = subprocess.run(check, input="\n".join(script), text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_named_special_range_opens_before_the_others_close() -> None:
    order = list(rules(3, POLICY, 7, 5))
    special = next(index for index, rule in enumerate(order) if "@special" in rule)
    assert any("10.0.0.0/24" in rule for rule in order[:special])
    assert any("1.0.0.0/8" in rule for rule in order[special:])


def test_a_sealed_sandbox_gets_replies_alone() -> None:
    order = list(rules(3, compile_policy(NetworkPolicy(Mode.SEALED)), 7, 5))
    assert order[-1].endswith("drop")
    assert not any("ct mark set" in rule for rule in order)


def test_what_no_rule_allows_is_dropped_and_logged() -> None:
    *_, told, dropped = rules(3, POLICY, 7, 5)
    assert told.endswith('log group 5 prefix "3:default"')
    assert dropped == "drop"
    assert list(rules(3, compile_policy(NetworkPolicy()), 7, 5))[-1] == "ct mark set 7 accept"
