"""T3: code in a sandbox widens its rights through the kernel: mounts, namespaces, modules, bpf, keys, devices."""

import pytest

from tests.security.conftest import Attack

SYSCALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(*(int(word, 0) for word in sys.argv[1:]))
print("refused" if result < 0 else "done", ctypes.get_errno())
"""

CALLS = {
    "mount": (165, 0, 0, 0, 0, 0),
    "umount2": (166, 0, 0),
    "pivot_root": (155, 0, 0),
    "fsopen": (430, 0, 0),
    "open_tree": (428, -100, 0, 1),
    "move_mount": (429, -1, 0, -1, 0, 0),
    "mount_setattr": (442, -1, 0, 0, 0, 0),
    "setns": (308, 0, 0),
    "unshare user": (272, 0x10000000),
    "unshare mount": (272, 0x00020000),
    "unshare net": (272, 0x40000000),
    "init_module": (175, 0, 0, 0),
    "finit_module": (313, -1, 0, 0),
    "delete_module": (176, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "reboot": (169, 0xFEE1DEAD, 672274793, 0, 0),
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "userfaultfd": (323, 0),
    "io_uring_setup": (425, 1, 0),
    "add_key": (248, 0, 0, 0, 0, 0),
    "request_key": (249, 0, 0, 0, 0),
    "keyctl": (250, 0, -3, 1),
    "ptrace traceme": (101, 16, 1, 0, 0),
    "swapon": (167, 0, 0),
    "acct": (163, 0),
    "settimeofday": (164, 0, 0),
    "clock_settime": (227, 0, 0),
    "syslog": (103, 3, 0, 0),
    "quotactl": (179, 0, 0, 0, 0),
    "iopl": (172, 3),
    "ioperm": (173, 0x60, 1, 1),
    "lookup_dcookie": (212, 0, 0, 0),
    "nfsservctl": (180, 0, 0, 0),
    "fanotify_init": (300, 0, 0),
    "open_by_handle_at": (304, -100, 0, 0),
    "vhangup": (153,),
}


@pytest.mark.parametrize("name", CALLS)
def test_system_calls_that_are_refused(attack: Attack, name: str) -> None:
    assert attack(["python3", "-c", SYSCALL, *map(str, CALLS[name])]).stdout.startswith("refused")


def test_clone3_with_namespaces(attack: Attack) -> None:
    for flags in ("--user", "--mount", "--net", "--pid --fork", "--user --map-root-user --mount"):
        assert attack(f"unshare {flags} true").exit_code != 0, flags


def test_an_ordinary_user_gets_no_new_namespace(attack: Attack) -> None:
    assert attack("setpriv --reuid 1000 --clear-groups unshare --user --map-root-user true").exit_code != 0


@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs none /mnt",
        "mount -t proc none /mnt",
        "mount -t sysfs none /mnt",
        "mount -t cgroup none /mnt",
        "mount -t debugfs none /mnt",
        "mount -o remount,rw /proc/sys",
        "mount --bind / /mnt",
        "umount /proc/sys",
        "umount -l /proc",
    ],
)
def test_mounts(attack: Attack, command: str) -> None:
    assert attack(command).exit_code != 0


@pytest.mark.parametrize("device", ["b 8 0", "b 254 0", "b 7 0", "c 1 1", "c 1 2", "c 10 232", "c 10 200"])
def test_device_nodes_open_nothing(attack: Attack, device: str) -> None:
    attack("rm -f /tmp/node")
    made = attack(f"mknod /tmp/node {device}")
    assert made.exit_code != 0 or attack("head -c 1 /tmp/node").exit_code != 0


def test_devices_that_are_there(attack: Attack) -> None:
    allowed = {
        "null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue",
        "fd", "stdin", "stdout", "stderr", "console", "core", "net", "fuse",
    }  # fmt: skip
    assert set(attack("ls /dev").stdout.split()) <= allowed


def test_control_groups_cannot_be_written(attack: Attack) -> None:
    found = attack("find / -xdev -name cgroup.procs -writable 2>/dev/null; find /sys -name 'memory*limit*' -writable")
    assert found.stdout == ""
    assert attack("mkdir /sys/fs/cgroup/own").exit_code != 0


def test_rights_are_few_and_cannot_grow(attack: Attack) -> None:
    status = attack("cat /proc/self/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"
    forbidden = {
        "SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "SYS_BOOT": 22, "SYS_TIME": 25,
        "NET_ADMIN": 12, "NET_RAW": 13, "MAC_ADMIN": 33, "SYSLOG": 34, "PERFMON": 38, "BPF": 39,
        "DAC_READ_SEARCH": 2, "SYS_RESOURCE": 24, "CHECKPOINT_RESTORE": 40,
    }  # fmt: skip
    bounding = int(fields["CapBnd"], 16)
    assert [name for name, bit in forbidden.items() if bounding >> bit & 1] == []


def test_set_user_id_programs_give_nothing(attack: Attack) -> None:
    attack("cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id", check=True)
    assert attack("setpriv --reuid 1000 --clear-groups /tmp/id -u").stdout.strip() == "1000"


def test_a_32_bit_call_does_not_pass_the_filter(attack: Attack) -> None:
    """The filter knows the machine's own calls alone; calls of another numbering are refused."""
    code = r"""
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print("called", ctypes.CFUNCTYPE(ctypes.c_int)(address)())
"""
    result = attack(["python3", "-c", code])
    assert result.exit_code != 0 or int(result.stdout.split()[1]) < 0
