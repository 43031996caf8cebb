"""The bounds on what can be said through DNS."""

import secrets

from talon_server.egress.budget import DnsBudget, DnsLimits, entropy_bits


def test_a_burst_is_allowed_and_then_the_rate_holds() -> None:
    budget = DnsBudget(DnsLimits(rate_per_s=10, burst=5))
    assert [budget.refuse("a.example", 1.0) for _ in range(6)] == [None] * 5 + ["rate"]
    assert budget.refuse("a.example", 1.2) is None


def test_many_new_names_below_one_parent_are_refused_for_a_minute() -> None:
    budget = DnsBudget(DnsLimits(names_per_minute=3))
    refused = [budget.refuse(f"h{n}.example.com", 0.0) for n in range(4)]
    assert refused == [None, None, None, "names"]
    assert budget.refuse("h1.example.com", 1.0) is None
    assert budget.refuse("h9.example.com", 61.0) is None


def test_data_in_labels_is_noticed() -> None:
    budget = DnsBudget(DnsLimits(random_bytes_per_minute=100))
    answers = [budget.refuse(f"{secrets.token_hex(20)}.t.example.com", 0.0) for _ in range(4)]
    assert answers[-1] == "entropy"
    assert entropy_bits("aaaaaaaa") == 0


def test_long_words_are_no_data() -> None:
    budget = DnsBudget(DnsLimits(random_bytes_per_minute=10))
    assert budget.refuse("aaaaaaaaaaaaaaaaaaaaaaaaaaaa.example.com", 0.0) is None
