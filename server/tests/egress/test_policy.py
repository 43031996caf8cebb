"""Network policies, compiled: which names and addresses a rule list opens."""

from ipaddress import ip_address, ip_network

import pytest

from talon_server.egress.addresses import is_special, within_special
from talon_server.egress.policy import Opening, compile_policy
from talon_server.model.network import Action, Mode, NetworkPolicy, Rule


def allowing(*targets: str | Rule, default: Action = Action.DENY):
    rules = tuple(t if isinstance(t, Rule) else Rule(Action.ALLOW, t) for t in targets)
    return compile_policy(NetworkPolicy(Mode.ALLOWLIST, rules, default))


def test_an_exact_name_is_matched_whatever_its_spelling() -> None:
    policy = allowing("Example.com.")
    assert policy.name("EXAMPLE.com").allowed
    assert policy.name("example.com.").rule == 0
    assert not policy.name("www.example.com").allowed


def test_a_suffix_covers_any_depth_and_not_its_apex() -> None:
    policy = allowing("*.example.com")
    assert policy.name("a.example.com").allowed
    assert policy.name("a.b.example.com").allowed
    assert not policy.name("example.com").allowed
    assert not policy.name("badexample.com").allowed


def test_the_first_rule_that_matches_decides() -> None:
    policy = allowing(Rule(Action.DENY, "secret.example.com"), "*.example.com")
    assert not policy.name("secret.example.com").allowed
    assert policy.name("www.example.com").rule == 1


def test_ports_of_several_rules_add_up_and_denied_ports_are_cut_out() -> None:
    policy = allowing(
        Rule(Action.DENY, "a.example.com", ((8080, 8080),), "tcp"),
        Rule(Action.ALLOW, "*.example.com", ((443, 443), (8000, 9000)), "tcp"),
    )
    assert policy.name("a.example.com").openings == (
        Opening("tcp", 443, 443),
        Opening("tcp", 8000, 8079),
        Opening("tcp", 8081, 9000),
    )


def test_a_sealed_sandbox_resolves_nothing() -> None:
    policy = compile_policy(NetworkPolicy(Mode.SEALED, (Rule(Action.ALLOW, "example.com"),), Action.DENY))
    assert not policy.name("example.com").allowed


def test_an_open_policy_needs_no_sets_for_its_names() -> None:
    verdict = compile_policy(NetworkPolicy()).name("anything.example")
    assert verdict.allowed
    assert not verdict.listed


def test_an_open_policy_denies_what_a_rule_denies() -> None:
    policy = allowing(Rule(Action.DENY, "*.bad.example"), default=Action.ALLOW)
    assert not policy.name("x.bad.example").allowed
    assert policy.name("good.example").allowed


@pytest.mark.parametrize(
    "address",
    ["10.1.2.3", "127.0.0.1", "169.254.169.254", "100.64.0.1", "168.63.129.16", "::1", "::ffff:10.0.0.1",
     "64:ff9b::a00:1", "2002:a00:1::", "fe80::1", "fd00::1", "0.0.0.0", "255.255.255.255"],
)  # fmt: skip
def test_special_addresses_are_refused_as_answers(address: str) -> None:
    assert is_special(ip_address(address))
    assert not allowing("example.com").answer(ip_address(address))


def test_a_public_address_is_a_good_answer() -> None:
    assert allowing("example.com").answer(ip_address("93.184.215.14"))
    assert allowing("example.com").answer(ip_address("2606:2800:21f::1"))


def test_only_a_rule_inside_a_special_range_opens_it() -> None:
    assert not allowing("0.0.0.0/0", "example.com").answer(ip_address("10.0.0.5"))
    assert allowing("10.0.0.0/24", "example.com").answer(ip_address("10.0.0.5"))
    assert within_special(ip_network("10.0.0.0/24"))
    assert not within_special(ip_network("0.0.0.0/0"))
