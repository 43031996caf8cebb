"""Files of a sandbox: single ones, and directories as archives in both directions, with hostile archives refused."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay import SB, Asked, ReplayServer, Reply, as_json, refusal
from talon_sandbox import AsyncClient, Client, Sandbox, TransferError
from talon_sandbox.archive import Unpacker, pack

Entry = tuple[tarfile.TarInfo, bytes]


@pytest.fixture
def sandbox(server: ReplayServer) -> Iterator[Sandbox]:
    with Client() as client:
        yield client.connect("demo")


def entry(name: str, data: bytes = b"", **fields: object) -> Entry:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def archive(*entries: Entry, form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def unpack(data: bytes, root: Path, step: int = 7) -> tuple[str, ...]:
    unpacker = Unpacker(root)
    try:
        for start in range(0, len(data), step):
            unpacker.feed(data[start : start + step])
        return unpacker.finish().skipped
    finally:
        unpacker.close()


def tree(root: Path) -> dict[str, str | bytes]:
    found: dict[str, str | bytes] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = "dir" if path.is_dir() else path.read_bytes()
    return found


def make_tree(root: Path) -> Path:
    (root / "deep" / ("n" * 120)).mkdir(parents=True)
    (root / "deep" / ("n" * 120) / "ünï").write_bytes(b"x" * 1500)
    (root / "empty").mkdir()
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("run.sh")
    return root


def test_small_files_and_questions(server: ReplayServer, sandbox: Sandbox) -> None:
    server.on("PUT", f"{SB}/fs", as_json({"path": "/workspace/a.py", "size": 1}))
    server.on("GET", f"{SB}/fs", Reply(200, "ä".encode()))
    server.on("GET", f"{SB}/fs/list", as_json({"items": [{"path": "/w/a", "name": "a", "type": "dir"}]}))
    server.on("GET", f"{SB}/fs/stat", refusal(404, "file_not_found"))
    sandbox.fs.write_text("a.py", "ä", mode="0600")
    assert server.asked[-1].query == {"path": "a.py", "mode": "0600", "parents": "true"}
    assert server.asked[-1].body == "ä".encode()
    assert sandbox.fs.read_text("a.py") == "ä"
    assert sandbox.fs.list("/w")[0].is_dir
    assert not sandbox.fs.exists("missing & odd?.txt")
    assert server.asked[-1].query == {"path": "missing & odd?.txt"}


def test_directory_goes_up_and_comes_down_unchanged(server: ReplayServer, sandbox: Sandbox, tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source")
    kept: list[bytes] = []

    def keep(asked: Asked) -> Reply:
        kept.append(asked.body)
        return Reply(204)

    server.on("PUT", f"{SB}/fs/archive", keep)
    assert sandbox.fs.upload(source, "/workspace/copy").files == 2
    server.on("GET", f"{SB}/fs/stat", as_json({"path": "/workspace/copy", "type": "dir"}))
    server.on("GET", f"{SB}/fs/archive", Reply(200, [kept[0][:1000], kept[0][1000:]]))
    moved = sandbox.fs.download("/workspace/copy", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
    assert (tmp_path / "back" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (moved.files, moved.bytes, moved.skipped) == (2, 1510, ())


def test_async_file_goes_up_and_comes_down(server: ReplayServer, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(range(256)) * 12_000)
    server.on("PUT", f"{SB}/fs", lambda asked: as_json({"size": len(asked.body)}))
    server.on("GET", f"{SB}/fs/stat", as_json({"path": "/b", "type": "file"}))
    server.on("GET", f"{SB}/fs", lambda asked: Reply(200, server.asked[1].body))

    async def use() -> None:
        async with AsyncClient() as client:
            sandbox = await client.connect("demo")
            await sandbox.fs.upload(tmp_path / "big", "/b")
            await sandbox.fs.download("/b", tmp_path / "again")

    asyncio.run(use())
    assert (tmp_path / "again").read_bytes() == (tmp_path / "big").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "big"]


def test_packed_archives_are_read_by_tarfile(tmp_path: Path) -> None:
    data = b"".join(pack(make_tree(tmp_path / "t"), []))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = tar.getnames()
    assert "link" in names and f"deep/{'n' * 120}/ünï" in names


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("step", [1, 512, 10_000])
def test_archives_in_any_pieces(tmp_path: Path, form: int, step: int) -> None:
    long = "d/" + "x" * 200
    assert unpack(archive(entry("./d", type=tarfile.DIRTYPE), entry(long, b"1" * 600), form=form), tmp_path, step) == ()
    assert tree(tmp_path) == {"d": "dir", long: b"1" * 600}


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil"])
def test_paths_out_of_the_target_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TransferError, match="outside"):
        unpack(archive(entry(name, b"x")), tmp_path / "in")
    assert tree(tmp_path) == {"in": "dir"}


def test_links_are_not_followed_out_of_the_target(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "was").symlink_to(outside)
    out = entry("out", type=tarfile.SYMTYPE, linkname=str(outside))
    device = entry("dev", type=tarfile.CHRTYPE)
    assert len(unpack(archive(out, device), tmp_path / "in")) == 2
    with pytest.raises(TransferError, match="link"):
        unpack(archive(entry("was/evil", b"x")), tmp_path / "in")
    assert tree(outside) == {}


@pytest.mark.parametrize("damage", [lambda data: data[:700], lambda data: data[:100] + b"?" * 500 + data[600:]])
def test_damaged_archives_are_told(tmp_path: Path, damage: object) -> None:
    with pytest.raises(TransferError):
        unpack(damage(archive(entry("a", b"x" * 900))), tmp_path)  # type: ignore[operator]
