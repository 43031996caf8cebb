"""The book of what a resolver granted."""

from ipaddress import ip_address

from talon_server.egress.answers import Grant
from talon_server.egress.grants import GrantBook
from talon_server.egress.policy import Opening, compile_policy
from talon_server.model.network import Action, Mode, NetworkPolicy, Rule

ADDRESS = ip_address("93.184.215.14")


def grant(name: str, low: int, high: int, life_s: int = 60) -> Grant:
    return Grant(name, ADDRESS, (Opening("tcp", low, high),), life_s)


def openings(grants: list[Grant]) -> list[Opening]:
    return [opening for one in grants for opening in one.openings]


def test_ranges_towards_one_address_are_cut_to_be_disjoint() -> None:
    book = GrantBook()
    assert openings(book.admit([grant("a.example", 400, 500)], 0)) == [Opening("tcp", 400, 500)]
    assert openings(book.admit([grant("b.example", 450, 600)], 1)) == [Opening("tcp", 501, 600)]


def test_the_same_range_again_prolongs_it() -> None:
    book = GrantBook()
    book.admit([grant("a.example", 443, 443)], 0)
    assert openings(book.admit([grant("a.example", 443, 443)], 10)) == [Opening("tcp", 443, 443)]


def test_what_expired_can_be_granted_whole_again() -> None:
    book = GrantBook()
    book.admit([grant("a.example", 400, 500, life_s=5)], 0)
    assert openings(book.admit([grant("b.example", 450, 600)], 6)) == [Opening("tcp", 450, 600)]


def test_a_new_policy_keeps_only_what_it_allows_itself() -> None:
    book = GrantBook()
    book.admit([grant("a.example", 443, 443), grant("b.example", 443, 443)], 0)
    rules = (Rule(Action.ALLOW, "b.example", ((80, 80),), "tcp"),)
    again = book.reissue(compile_policy(NetworkPolicy(Mode.ALLOWLIST, rules, Action.DENY)), 10)
    assert [(one.name, one.openings, one.life_s) for one in again] == [("b.example", (Opening("tcp", 80, 80),), 50)]
    assert book.names(ADDRESS) == ["b.example"]


def test_addresses_of_the_other_family_are_not_for_these_walls() -> None:
    other = Grant("a.example", ip_address("2606:2800:21f::1"), (Opening("tcp", 443, 443),), 60)
    assert GrantBook().admit([other], 0) == []
