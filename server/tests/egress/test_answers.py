"""The resolver's rulings on questions and answers."""

import dns.message
import dns.rcode
import dns.rrset

from talon_server.egress.answers import judge_answer, judge_question
from talon_server.egress.policy import CompiledPolicy, Opening, compile_policy
from talon_server.model.network import Action, Mode, NetworkPolicy, Rule

POLICY = compile_policy(
    NetworkPolicy(
        Mode.ALLOWLIST,
        (Rule(Action.DENY, "evil.example"), Rule(Action.ALLOW, "*.example", ((443, 443),), "tcp")),
        Action.DENY,
    )
)


def ask(policy: CompiledPolicy, name: str, *records: tuple[str, int, str, str]):
    query = dns.message.make_query(name, "A")
    verdict, ruling = judge_question(policy, query)
    if ruling is not None:
        return ruling
    assert verdict is not None
    answer = dns.message.make_response(query)
    answer.answer.extend(dns.rrset.from_text(owner, ttl, "IN", kind, data) for owner, ttl, kind, data in records)
    return judge_answer(policy, verdict, query, answer)


def test_an_allowed_answer_grants_its_addresses_for_the_ports_of_the_rule() -> None:
    ruling = ask(POLICY, "www.example", ("www.example.", 300, "A", "93.184.215.14"))
    assert ruling.denied is None
    [grant] = ruling.grants
    assert (str(grant.address), grant.openings, grant.life_s) == ("93.184.215.14", (Opening("tcp", 443, 443),), 360)


def test_a_name_that_no_rule_allows_does_not_exist() -> None:
    ruling = ask(POLICY, "www.other.test")
    assert ruling.response.rcode() == dns.rcode.NXDOMAIN
    assert ruling.denied == "policy"


def test_a_public_name_that_points_inside_is_refused() -> None:
    ruling = ask(POLICY, "www.example", ("www.example.", 1, "A", "169.254.169.254"))
    assert ruling.response.rcode() == dns.rcode.NXDOMAIN
    assert ruling.denied == "rebinding:169.254.169.254"
    assert not ruling.grants


def test_an_alias_to_a_denied_name_is_refused() -> None:
    ruling = ask(
        POLICY,
        "www.example",
        ("www.example.", 60, "CNAME", "evil.example."),
        ("evil.example.", 60, "A", "93.184.215.14"),
    )
    assert ruling.denied == "alias:evil.example"
    assert not ruling.grants


def test_an_alias_to_an_unlisted_name_follows_the_name_that_was_asked() -> None:
    ruling = ask(
        POLICY, "www.example", ("www.example.", 60, "CNAME", "cdn.test."), ("cdn.test.", 60, "A", "93.184.215.14")
    )
    assert [grant.name for grant in ruling.grants] == ["www.example"]


def test_a_transfer_or_any_question_is_refused() -> None:
    _, ruling = judge_question(POLICY, dns.message.make_query("www.example", "ANY"))
    assert ruling is not None
    assert ruling.response.rcode() == dns.rcode.REFUSED
