"""Recording files: written in turn by agent and server, closed, signed, verified."""

import os
from pathlib import Path

from talon_server.model.recording import START, seal
from talon_server.worker.recordings import HEAD, PACKED, Recordings, signature_holds


def written_by_an_agent(recordings: Recordings, name: str, count: int = 3, torn: bytes = b"") -> None:
    descriptor, previous = recordings.open(name), START
    for number in range(count):
        line, previous = seal(previous, {"n": number, "at": 1.0, "kind": "cmd.out", "id": "p", "data": "x" * 50})
        os.write(descriptor, line)
    os.write(descriptor, torn)
    os.close(descriptor)


def test_the_server_goes_on_where_the_agent_stopped_also_after_a_torn_line(tmp_path: Path) -> None:
    recordings = Recordings.at(tmp_path)
    written_by_an_agent(recordings, "r1", torn=b'{"n":3,"at":1.0,"ki')
    recordings.append("r1", "life", {"state": "terminated"})
    found, head, _ = recordings.verify("r1")
    assert found.sound
    assert found.records == 4
    assert head is None


def test_a_closed_recording_is_packed_signed_and_verifies(tmp_path: Path) -> None:
    recordings = Recordings.at(tmp_path)
    written_by_an_agent(recordings, "r1")
    head = recordings.close("r1")
    assert head is not None
    assert head.records == 3
    assert recordings.close("r1") is None
    found, _, signed = Recordings.at(tmp_path).verify("r1")
    assert found.sound
    assert signed
    assert len(list(recordings.records("r1"))) == 3
    assert not recordings.is_open("r1")


def test_another_servers_signature_does_not_hold(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    ours = Recordings.at(one)
    written_by_an_agent(ours, "r1")
    head = ours.close("r1")
    assert head is not None
    assert signature_holds(head)
    os.close(Recordings.at(two).open("r1"))
    for name in (PACKED, HEAD):
        (two / "recordings" / "r1" / name).write_bytes((one / "recordings" / "r1" / name).read_bytes())
    _, _, signed = Recordings.at(two).verify("r1")
    assert not signed


def test_an_open_recording_without_records_can_be_closed(tmp_path: Path) -> None:
    recordings = Recordings.at(tmp_path)
    os.close(recordings.open("r1"))
    head = recordings.close("r1")
    assert head is not None
    assert head.records == 0
    recordings.delete("r1")
    assert recordings.ids() == []
