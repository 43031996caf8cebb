"""What passes the gateway in the heads of messages, and what never does."""

import pytest

from talon_server.gateway.heads import Ambiguous, Framing, Peer, framing, request_head, response_fields

PEER = Peer("192.0.2.7", "https", b"box.test", b"rid")
PREFIX = "/sandboxes/s/proxy/8000"


def head(fields: list[tuple[bytes, bytes]], *, to_user: bool = True) -> bytes:
    return request_head(
        b"GET", b"/x", fields, PEER, token="t0k", host=b"localhost:8000", prefix=PREFIX, to_user=to_user
    )


@pytest.mark.parametrize(
    "fields",
    [
        [(b"content-length", b"1"), (b"content-length", b"1")],
        [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
        [(b"content-length", b"+1")],
        [(b"content-length", b"1, 1")],
        [(b"transfer-encoding", b"gzip, chunked")],
        [(b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")],
        [(b"transfer-encoding", b"xchunked")],
    ],
)
def test_lengths_that_can_be_read_in_two_ways_are_refused(fields: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Ambiguous):
        framing(fields)


def test_one_length_or_chunks_or_nothing() -> None:
    assert framing([(b"content-length", b"12")]) == Framing(12, False)
    assert framing([(b"transfer-encoding", b"Chunked")]) == Framing(None, True)
    assert framing([]) == Framing()


def test_the_servers_credentials_stay_with_the_server() -> None:
    sent = head(
        [
            (b"open-sandbox-api-key", b"tln_secret"),
            (b"x-execd-access-token", b"stolen"),
            (b"opensandbox-secure-access", b"stolen"),
            (b"authorization", b"Bearer tln_secret"),
            (b"cookie", b"talon_session=abc; theme=dark"),
        ]
    )
    assert b"secret" not in sent
    assert b"stolen" not in sent
    assert b"\r\ncookie: theme=dark" in sent
    assert sent.count(b"x-execd-access-token: t0k") == 1


def test_a_programs_own_authorization_passes_but_never_the_sandboxs_token() -> None:
    assert b"authorization: Basic dTpw" in head([(b"authorization", b"Basic dTpw")])
    assert b"authorization" not in head([(b"authorization", b"Bearer t0k")])
    assert b"authorization" not in head([(b"authorization", b"Basic dTpw")], to_user=False)


def test_hop_by_hop_fields_and_forged_forwarding_end_here() -> None:
    sent = head(
        [
            (b"connection", b"keep-alive, x-private"),
            (b"x-private", b"1"),
            (b"te", b"trailers"),
            (b"upgrade", b"h2c"),
            (b"x-forwarded-for", b"10.0.0.1"),
            (b"forwarded", b"for=10.0.0.1"),
            (b"accept", b"*/*"),
        ]
    )
    assert b"x-private" not in sent
    assert b"h2c" not in sent
    assert b"10.0.0.1" not in sent
    assert b"\r\naccept: */*" in sent
    assert b"\r\nx-forwarded-for: 192.0.2.7" in sent
    assert b"\r\nx-forwarded-proto: https" in sent
    assert b"\r\nx-forwarded-host: box.test" in sent


def test_a_preview_stays_same_origin_for_the_program() -> None:
    assert b"\r\norigin: http://localhost:8000" in head([(b"origin", b"https://box.test")])
    assert b"\r\norigin: https://evil.test" in head([(b"origin", b"https://evil.test")])


def test_redirects_and_cookies_stay_below_the_path() -> None:
    fields = response_fields(
        [
            (b"location", b"/login"),
            (b"set-cookie", b"a=1; Path=/; Domain=box.test; HttpOnly"),
            (b"set-cookie", b"talon_session=evil; Path=/"),
            (b"connection", b"close"),
            (b"transfer-encoding", b"chunked"),
        ],
        prefix=PREFIX,
        to_user=True,
    )
    assert (b"location", PREFIX.encode() + b"/login") in fields
    assert (b"set-cookie", b"a=1; HttpOnly; Path=" + PREFIX.encode() + b"/") in fields
    assert not any(b"talon_session" in value for _, value in fields)
    assert not any(name in (b"connection", b"transfer-encoding") for name, _ in fields)


def test_redirects_elsewhere_are_left_alone() -> None:
    for location in (b"https://other.test/", b"//other.test/", b"relative"):
        assert response_fields([(b"location", location)], prefix=PREFIX, to_user=True) == [(b"location", location)]
