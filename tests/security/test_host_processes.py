"""T2: code in a sandbox sees, stops or spies on processes of the host, or on the agent that guards it."""

import os

import pytest

from tests.security.conftest import Attack

SYSCALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(*(int(word) for word in sys.argv[1:]))
print("refused" if result < 0 else "done", ctypes.get_errno())
"""
PTRACE, PROCESS_VM_READV, PIDFD_OPEN, KCMP = 101, 310, 434, 312


def test_only_its_own_processes_are_seen(attack: Attack) -> None:
    names = attack("ps -e -o comm=").stdout.split()
    assert "python" not in names
    assert len(names) < 20
    assert attack(f"ls /proc/{os.getpid()}/cmdline 2>/dev/null | xargs -r cat | grep -c pytest").stdout.strip() in (
        "",
        "0",
    )


@pytest.mark.parametrize("signal", ["KILL", "TERM", "STOP", "SEGV", "USR1"])
def test_the_first_process_cannot_be_ended(attack: Attack, signal: str) -> None:
    attack(f"kill -{signal} 1")
    assert attack("echo alive").stdout == "alive\n"


def test_the_first_process_cannot_be_traced_or_read(attack: Attack) -> None:
    for call in ((PTRACE, 16, 1, 0, 0), (PTRACE, 0x4206, 1, 0, 0), (KCMP, 1, 1, 0, 0, 0)):
        assert attack(["python3", "-c", SYSCALL, *map(str, call)]).stdout.startswith("refused"), call
    for file in ("environ", "mem", "maps", "auxv", "stack", "syscall"):
        assert attack(f"head -c 1 /proc/1/{file} | wc -c").stdout.strip() == "0", file
    assert attack("readlink /proc/1/exe; ls -l /proc/1/fd/ 2>/dev/null | grep -c socket").stdout.strip() in ("", "0")
    assert attack("cat /proc/1/fd/3 /proc/1/fd/4").exit_code != 0


def test_the_agents_memory_cannot_be_written(attack: Attack) -> None:
    code = "import os\nfd = os.open('/proc/1/mem', os.O_RDWR)\nos.pwrite(fd, b'x', 4096)"
    assert attack(["python3", "-c", code]).exit_code != 0


def test_the_agents_program_cannot_be_replaced(attack: Attack) -> None:
    assert attack("echo x > /proc/1/exe").exit_code != 0
    assert attack("ls /agent").exit_code != 0


def test_its_token_is_nowhere_to_be_found(attack: Attack) -> None:
    assert attack("env | grep -ci token").stdout.strip() == "0"
    assert attack("cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -ci -e token -e tln_").stdout.strip() == "0"
