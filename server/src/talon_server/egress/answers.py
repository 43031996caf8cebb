"""What a sandbox's resolver does with a question and with the answer to it. No sockets here.

The worker's resolver calls `judge_question` before it asks anyone and `judge_answer` on what came back.
Answers feed the walls: each address an allowed name resolved to, with the ports its rule opens and how long.
Follows RFC 1035 (answers, CNAME), RFC 2308 (negative answers) and RFC 8020.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from talon_server.egress.addresses import Address, parse_address
from talon_server.egress.policy import CompiledPolicy, NameVerdict, Opening, canonical

MIN_LIFE_S = 60
MAX_LIFE_S = 3600
PASSED_TYPES = frozenset(
    {"A", "AAAA", "CNAME", "MX", "TXT", "SRV", "NS", "SOA", "CAA", "PTR", "HTTPS", "SVCB", "NAPTR"}
)


@dataclass(frozen=True, slots=True)
class Grant:
    """Open `openings` towards `address` for `life_s` seconds, because `name` was allowed."""

    name: str
    address: Address
    openings: tuple[Opening, ...]
    life_s: int


@dataclass(frozen=True, slots=True)
class Ruling:
    """What to tell the sandbox: `denied` is a reason for the log, None when all is well."""

    response: dns.message.Message
    grants: tuple[Grant, ...] = ()
    denied: str | None = None
    rule: int | None = None


def judge_question(policy: CompiledPolicy, query: dns.message.Message) -> tuple[NameVerdict | None, Ruling | None]:
    """Decide a question: a verdict to ask upstream with, or the ruling that ends it at once."""
    if len(query.question) != 1 or query.question[0].rdclass != dns.rdataclass.IN:
        return None, Ruling(_reply(query, dns.rcode.REFUSED), denied="malformed")
    question = query.question[0]
    kind = dns.rdatatype.to_text(question.rdtype)
    if kind not in PASSED_TYPES:
        return None, Ruling(_reply(query, dns.rcode.REFUSED), denied=f"type:{kind}")
    verdict = policy.name(question_name(query))
    if not verdict.allowed:
        return None, Ruling(_reply(query, dns.rcode.NXDOMAIN), denied="policy", rule=verdict.rule)
    return verdict, None


def judge_answer(
    policy: CompiledPolicy, verdict: NameVerdict, query: dns.message.Message, answer: dns.message.Message
) -> Ruling:
    """Check an upstream answer: aliases to denied names and addresses that are not public end in NXDOMAIN."""
    name = question_name(query)
    for alias in _aliases(answer):
        onward = policy.name(alias)
        if not onward.allowed and onward.rule is not None:
            return Ruling(_reply(query, dns.rcode.NXDOMAIN), denied=f"alias:{alias}", rule=onward.rule)
    grants = []
    for address, ttl in _addresses(answer):
        if not policy.answer(address):
            return Ruling(_reply(query, dns.rcode.NXDOMAIN), denied=f"rebinding:{address}", rule=verdict.rule)
        if verdict.listed:
            life_s = min(max(ttl, MIN_LIFE_S), MAX_LIFE_S) + MIN_LIFE_S
            grants.append(Grant(name, address, verdict.openings, life_s))
    answer.id = query.id
    return Ruling(answer, tuple(grants), rule=verdict.rule)


def without_ipv6(query: dns.message.Message) -> dns.message.Message | None:
    """The empty answer to an AAAA question (sandboxes have no IPv6), or None for other questions."""
    if query.question and query.question[0].rdtype in (dns.rdatatype.AAAA, dns.rdatatype.HTTPS, dns.rdatatype.SVCB):
        return _reply(query, dns.rcode.NOERROR)
    return None


def failure(query: dns.message.Message) -> dns.message.Message:
    """SERVFAIL: nobody upstream answered; closed, and the client may ask again."""
    return _reply(query, dns.rcode.SERVFAIL)


def refusal(query: dns.message.Message) -> dns.message.Message:
    """REFUSED: too much was asked; nothing is said of the name."""
    return _reply(query, dns.rcode.REFUSED)


def question_name(query: dns.message.Message) -> str:
    """The name asked for, as it is compared."""
    return canonical(query.question[0].name.to_text(omit_final_dot=True)) if query.question else ""


def _reply(query: dns.message.Message, rcode: dns.rcode.Rcode) -> dns.message.Message:
    response = dns.message.make_response(query, recursion_available=True)
    response.set_rcode(rcode)
    return response


def _aliases(answer: dns.message.Message) -> Iterator[str]:
    for rrset in answer.answer:
        if rrset.rdtype == dns.rdatatype.CNAME:
            for record in rrset:
                yield canonical(record.target.to_text(omit_final_dot=True))


def _addresses(answer: dns.message.Message) -> Iterator[tuple[Address, int]]:
    for rrset in answer.answer + answer.additional:
        if rrset.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA):
            for record in rrset:
                address = parse_address(record.address)
                if address is not None:
                    yield address, rrset.ttl
