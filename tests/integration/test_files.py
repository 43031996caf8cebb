"""Files: whole ones, large ones, directories, and paths that lead astray."""

import hashlib
import os
from pathlib import Path

import pytest

from talon_sandbox import NotFoundError, Sandbox, TalonError


def test_write_and_read(shared: Sandbox) -> None:
    shared.fs.write_text("/workspace/deep/er/a.py", "print('ä')\n")
    assert shared.fs.read_text("deep/er/a.py") == "print('ä')\n"
    assert shared.run("python3 deep/er/a.py", check=True).stdout == "ä\n"
    assert shared.run("stat -c %U deep/er/a.py").stdout == "sandbox\n"
    assert [entry.name for entry in shared.fs.list("/workspace/deep")] == ["er"]
    shared.fs.move("/workspace/deep/er/a.py", "/workspace/deep/b.py")
    assert shared.fs.exists("/workspace/deep/b.py")
    assert not shared.fs.exists("/workspace/deep/er/a.py")
    assert shared.fs.stat("/workspace/deep/b.py").size == len("print('ä')\n".encode())
    shared.fs.remove("/workspace/deep", recursive=True)
    assert not shared.fs.exists("/workspace/deep")


def test_missing_file(shared: Sandbox) -> None:
    with pytest.raises(NotFoundError) as caught:
        shared.fs.read_text("/workspace/none")
    assert caught.value.remedy


def test_directory_there_and_back(shared: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "project"
    (source / "src" / "empty").mkdir(parents=True)
    (source / "src" / "data.bin").write_bytes(os.urandom(300_000))
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    shared.fs.upload(source, "/workspace/project")
    assert shared.run("test -x project/run.sh && test -d project/src/empty && echo yes").stdout == "yes\n"
    shared.fs.download("/workspace/project", tmp_path / "back")
    assert (tmp_path / "back" / "src" / "data.bin").read_bytes() == (source / "src" / "data.bin").read_bytes()
    shared.fs.remove("/workspace/project", recursive=True)


def test_large_file_there_and_back(sb: Sandbox, tmp_path: Path) -> None:
    block = os.urandom(1 << 20)
    source, back = tmp_path / "big", tmp_path / "big.back"
    with source.open("wb") as file:
        for number in range(64):
            file.write(block[number:] + block[:number])
    sb.fs.upload(source, "/workspace/big")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert sb.run("sha256sum < big").stdout.split()[0] == digest
    sb.fs.download("/workspace/big", back)
    assert hashlib.sha256(back.read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("path", ["../../../../etc/shadow-of-host", "/workspace/../../../../proc/../no-such-file"])
def test_dots_do_not_leave_the_root(shared: Sandbox, path: str) -> None:
    shared.fs.write_text("/tmp/inside", "x")
    with pytest.raises(TalonError):
        shared.fs.read_text(path)


def test_a_link_out_of_the_root_stays_inside(shared: Sandbox) -> None:
    """A link to / or to a host path means the sandbox's own tree."""
    shared.run("ln -sfn / /tmp/up; ln -sfn /var/lib/talon-test /tmp/host", check=True)
    names = {entry.name for entry in shared.fs.list("/tmp/up/")}
    assert "workspace" in names
    assert not shared.fs.exists("/tmp/host/platform")


def test_files_of_others_are_refused_to_the_user(shared: Sandbox) -> None:
    shared.run("echo secret > /root/secret; chmod 600 /root/secret", user="root", check=True)
    with pytest.raises(TalonError):
        shared.fs.as_user("sandbox").read_text("/root/secret")
