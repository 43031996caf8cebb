"""The audit log: chained, queried from its end, taken up again after a crash."""

from pathlib import Path

from talon_server.control.audit import Audit


def fill(audit: Audit, count: int) -> None:
    for number in range(count):
        action = "sandbox.create" if number % 2 == 0 else "key.delete"
        audit.write(action, {"tenant": "t", "target": f"x{number}", "key_id": "k", "status": 200, "pad": "p" * 500})


def test_entries_come_newest_first_and_by_filter(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    fill(audit, 500)
    assert [entry["n"] for entry in audit.query(tenant="t", limit=3)] == [499, 498, 497]
    assert [entry["n"] for entry in audit.query(tenant="t", action="sandbox.*", limit=2)] == [498, 496]
    assert [entry["n"] for entry in audit.query(tenant="t", limit=2, before=10)] == [9, 8]
    assert [entry["n"] for entry in audit.query(tenant="t", target="x0", limit=5)] == [0]
    assert len(audit.query(tenant="t", limit=1000)) == 500
    assert audit.query(tenant="other", limit=5) == []
    audit.close()


def test_the_chain_goes_on_after_a_restart_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    fill(audit, 3)
    audit.close()
    with path.open("ab") as file:
        file.write(b'{"n":3,"at":1')
    again = Audit(path)
    fill(again, 2)
    found = again.check()
    again.close()
    assert found.sound
    assert found.records == 5


def test_an_altered_entry_is_named(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    fill(audit, 5)
    path.write_bytes(path.read_bytes().replace(b'"target":"x2"', b'"target":"x9"'))
    assert audit.check().bad_record == 2
    audit.close()


def test_followers_hear_each_entry(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    heard: list[int] = []
    stop = audit.listen(lambda entry: heard.append(entry["n"]))
    fill(audit, 2)
    stop()
    fill(audit, 1)
    audit.close()
    assert heard == [0, 1]
