"""T6: a sandbox's files trick the server or the client into touching files of the host."""

import io
import tarfile
from pathlib import Path

import pytest

from talon_sandbox import Sandbox, TalonError
from tests.framework.platform import Platform


def archive(*members: tuple[str, str | None]) -> bytes:
    """A tar of files, or of links where a target is given."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, target in members:
            entry = tarfile.TarInfo(name)
            if target is not None:
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
            else:
                entry.size = 4
                tar.addfile(entry, io.BytesIO(b"evil"))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "members",
    [
        (("../../../../tmp/escaped", None),),
        (("/tmp/../../../tmp/escaped", None),),
        (("out", "/tmp"), ("out/escaped", None)),
        (("out", "../../../../../../tmp"), ("out/escaped", None)),
    ],
)
def test_archives_stay_below_their_target(
    platform: Platform, shared: Sandbox, members: tuple[tuple[str, str | None], ...]
) -> None:
    shared.run("rm -rf /workspace/t /tmp/escaped; mkdir -p /workspace/t", check=True)
    path = f"/v2/sandboxes/{shared.id}/fs/archive"
    platform.http.put(path, params={"path": "/workspace/t"}, content=archive(*members))
    assert not Path("/tmp/escaped").exists()
    assert not shared.fs.exists("/tmp/escaped")


def test_hostile_archives_from_a_sandbox(shared: Sandbox, tmp_path: Path) -> None:
    """A directory full of links that lead out, downloaded by the SDK."""
    shared.run(
        "rm -rf d && mkdir d && ln -s /etc d/etc && ln -s ../../../../../etc/passwd d/pw && echo ok > d/f", check=True
    )
    moved = shared.fs.download("/workspace/d", tmp_path / "d")
    assert (tmp_path / "d" / "f").read_text() == "ok\n"
    assert not (tmp_path / "d" / "etc").exists()
    assert not (tmp_path / "d" / "pw").exists()
    assert len(moved.skipped) == 2


def test_writing_through_a_link_to_proc(shared: Sandbox) -> None:
    shared.run("ln -sfn /proc/1/root /tmp/r; ln -sfn /proc/self/exe /tmp/exe", user="root", check=True)
    for path in ("/tmp/r/etc/evil", "/tmp/exe"):
        with pytest.raises(TalonError):
            shared.fs.write_text(path, "x")
    assert not Path("/etc/evil").exists()


def test_special_files_do_not_hang_the_agent(shared: Sandbox) -> None:
    shared.run("rm -f /tmp/pipe; mkfifo /tmp/pipe", check=True)
    with pytest.raises(TalonError):
        shared.fs.read_text("/tmp/pipe")
    assert shared.run("echo alive").stdout == "alive\n"
