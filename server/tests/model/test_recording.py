"""The recording's chain and its conversions."""

import json

import pytest

from talon_server.model.recording import START, cast, seal, verify


def chain(*records: dict) -> list[bytes]:
    lines, previous = [], START
    for number, record in enumerate(records):
        line, previous = seal(previous, {"n": number, "at": 1.5 + number, **record})
        lines.append(line)
    return lines


SESSION = (
    {"kind": "term.open", "id": "t1", "cols": 80, "rows": 24, "command": "bash"},
    {"kind": "term.out", "id": "t1", "data": "héllo\r\n"},
    {"kind": "cmd.start", "id": "p1", "command": "ls"},
    {"kind": "term.resize", "id": "t1", "cols": 100, "rows": 30},
    {"kind": "term.out", "id": "t1", "b64": "//4="},
)


def test_a_recording_verifies_and_each_line_is_json() -> None:
    lines = chain(*SESSION)
    found = verify(lines)
    assert found.sound
    assert found.records == 5
    assert verify(lines, found.head).sound
    assert [json.loads(line)["n"] for line in lines] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("byte", [3, 20, 60, -10, -1])
def test_an_altered_byte_is_found_in_its_record(byte: int) -> None:
    lines = chain(*SESSION)
    changed = bytearray(lines[2])
    changed[byte] ^= 1
    found = verify([*lines[:2], bytes(changed), *lines[3:]])
    assert found.bad_record == 2
    assert found.bad_offset == len(lines[0]) + len(lines[1])


def test_a_missing_record_is_found() -> None:
    lines = chain(*SESSION)
    assert verify(lines[:1] + lines[2:]).bad_record == 1


def test_a_recording_cut_at_its_end_does_not_reach_its_signed_head() -> None:
    lines = chain(*SESSION)
    head = verify(lines).head
    found = verify(lines[:-1], head)
    assert not found.sound
    assert "head" in found.reason


def test_a_terminal_becomes_an_asciicast() -> None:
    header, *events = cast((json.loads(line) for line in chain(*SESSION)), "t1")
    assert json.loads(header)["width"] == 80
    assert [json.loads(event) for event in events] == [
        [1.0, "o", "héllo\r\n"],
        [3.0, "r", "100x30"],
        [4.0, "o", "\ufffd\ufffd"],
    ]
