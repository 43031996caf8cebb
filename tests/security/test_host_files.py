"""T1: code in a sandbox reads or changes files of the host."""

import os
from pathlib import Path

import pytest

from talon_sandbox import Sandbox
from tests.framework.platform import Platform
from tests.security.conftest import Attack


def test_the_root_is_the_images(attack: Attack) -> None:
    marker = Path("/etc/talon-test-marker")
    marker.write_text("the host's")
    try:
        assert attack("cat /etc/talon-test-marker").exit_code != 0
        assert attack("cat /proc/1/root/etc/talon-test-marker").exit_code != 0
        assert attack("find / -xdev -name talon-test-marker").stdout == ""
    finally:
        marker.unlink()


def test_the_mount_table_names_no_place_to_go(attack: Attack) -> None:
    """No mount of the host's but the sandbox's own root and the read-only descriptions of its processors."""
    places = {line.split()[4] for line in attack("cat /proc/self/mountinfo").stdout.splitlines()}
    allowed = ("/", "/proc", "/dev", "/sys", "/etc/resolv.conf", "/etc/hosts", "/etc/hostname", "/tmp", "/run")
    assert {place for place in places if not place.startswith(allowed)} == set()
    assert attack("ls /newroot /oldroot /.oldroot /.pivot_root").stdout == ""


@pytest.mark.parametrize(
    "file",
    [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hotplug",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/sysrq-trigger",
        "/sys/kernel/uevent_helper",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/fs/cgroup/release_agent",
    ],
)
def test_files_that_change_the_host_cannot_be_written(attack: Attack, file: str) -> None:
    before = Path(file).read_bytes() if Path(file).is_file() and file != "/proc/sysrq-trigger" else b""
    result = attack(f"echo x > {file}")
    assert result.exit_code != 0 or file.startswith("/sys/"), "its own empty /sys may take files, the host's never"
    if before and file != "/proc/sysrq-trigger":
        assert Path(file).read_bytes() == before


@pytest.mark.parametrize("file", ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/kallsyms"])
def test_files_that_tell_of_the_host_are_masked(attack: Attack, file: str) -> None:
    assert attack(f"head -c 16 {file} | wc -c").stdout.strip() == "0" or attack(f"cat {file}").exit_code != 0


def test_descriptors_of_the_host_are_not_inherited(attack: Attack) -> None:
    """Whatever is open in a command was opened for it."""
    targets = attack("for fd in /proc/self/fd/*; do readlink $fd; done").stdout.split()
    assert [target for target in targets if target.startswith("/") and not target.startswith(("/proc", "/dev/"))] == []


def test_a_file_made_by_its_root_is_nobodys_on_the_host(shared: Sandbox) -> None:
    """Root of the sandbox has an id of its own range on the host."""
    first = shared.run("cat /proc/self/uid_map", user="root").stdout.split()
    assert int(first[0]) == 0
    assert int(first[1]) >= 1 << 16
    assert int(first[2]) <= 1 << 16


def test_open_by_handle(attack: Attack) -> None:
    """The classic way out of a mount namespace with CAP_DAC_READ_SEARCH."""
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
handle = (ctypes.c_ubyte * 20)(8, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0)
fd = libc.open_by_handle_at(os.open("/", os.O_RDONLY), handle, os.O_RDONLY)
print("refused" if fd < 0 else os.listdir(fd))
"""
    assert attack(["python3", "-c", code]).stdout == "refused\n"


def test_users_of_the_host_cannot_reach_what_sandboxes_and_images_bring(platform: Platform, shared: Sandbox) -> None:
    """Root in a sandbox may make a set-user-id program; on the disk it is the host root's, so nobody may get to it."""
    shared.run(
        "cp /bin/sh /workspace/own && chown 0:0 /workspace/own && chmod 4755 /workspace/own", user="root", check=True
    )
    for name in ("disk", "images"):
        assert (platform.home / name).stat().st_mode & 0o077 == 0, name
    if (platform.home / "disk").is_mount():
        assert os.statvfs(platform.home / "disk").f_flag & os.ST_NOSUID
