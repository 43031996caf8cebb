"""Terminals: input, output, size, several clients, exact offsets, the end; and a server killed meanwhile."""

from collections.abc import Iterator

import pytest

from talon_sandbox import ConflictError, Sandbox, Terminal
from tests.framework.platform import Platform
from tests.framework.waiting import until

BOUND = 120
"""Seconds: longer than a busy machine needs."""


@pytest.fixture
def shell(shared: Sandbox) -> Iterator[Terminal]:
    """A shell that does not echo."""
    terminal = shared.terminal(command="stty -echo; echo ready; exec sh", env={"PS1": ""})
    try:
        terminal.read_until("ready\r\n", timeout=BOUND)
        yield terminal
    finally:
        terminal.kill()


def test_what_is_typed_is_run_and_the_exit_code_told(shell: Terminal) -> None:
    shell.write("tty; echo $((6 * 7))\n")
    seen = shell.read_until("42\r\n", timeout=BOUND)
    assert b"/dev/pts/" in seen
    shell.write("exit 7\n")
    assert shell.wait(timeout=BOUND) == 7
    until(lambda: shell.read(timeout=BOUND) == b"", "the rest of its output is read")
    assert shell.exit_code == 7


def test_the_program_sees_a_new_size(shell: Terminal) -> None:
    shell.write("stty size\n")
    shell.read_until("24 80\r\n", timeout=BOUND)
    shell.resize(132, 43)
    shell.write("stty size\n")
    assert b"43 132\r\n" in shell.read_until("43 132\r\n", timeout=BOUND)


def test_a_signal_reaches_the_foreground(shared: Sandbox) -> None:
    with shared.terminal(command="trap 'echo caught; exit 3' INT; echo set; sleep 3600 & wait") as terminal:
        terminal.read_until("set", timeout=BOUND)
        terminal.signal("INT")
        assert terminal.wait(timeout=BOUND) == 3
        terminal.kill()


def test_output_continues_at_the_offset_after_the_client_was_away(shared: Sandbox, shell: Terminal) -> None:
    shell.write("seq 1 200\n")
    first = shell.read_until("200\r\n", timeout=BOUND)
    at = shell.offset
    shell.close()
    again = until(lambda: _attached(shared, shell.id, since=at), "the terminal is free")
    assert again is not None
    again.write("seq 201 400\n")
    rest = again.read_until("400\r\n", timeout=BOUND)
    again.close()
    numbers = [word for word in (first + rest).split() if word.isdigit()]
    assert numbers == [str(number).encode() for number in range(1, 401)]


def _attached(sandbox: Sandbox, id: str, *, since: int) -> Terminal | None:
    try:
        return sandbox.attach(id, since=since)
    except ConflictError:
        return None


def test_one_holder_many_viewers(shared: Sandbox, shell: Terminal) -> None:
    with pytest.raises(ConflictError):
        shared.attach(shell.id)
    with shared.attach(shell.id, viewer=True) as one, shared.attach(shell.id, viewer=True) as two:
        shell.write("echo for all\n")
        for client in (shell, one, two):
            assert b"for all\r\n" in client.read_until("for all\r\n", timeout=BOUND)
        one.write("echo not mine\n")
        with pytest.raises(ConflictError, match="viewer"):
            one.read_until("not mine", timeout=BOUND)


def test_taking_over(shared: Sandbox, shell: Terminal) -> None:
    with shared.attach(shell.id, takeover=True) as other:
        with pytest.raises(ConflictError, match="took"):
            shell.read_until("nothing", timeout=BOUND)
        other.write("echo mine\n")
        other.read_until("mine\r\n", timeout=BOUND)


def test_characters_and_bursts_arrive_whole(shared: Sandbox) -> None:
    count = 200_000
    command = f"stty -onlcr; seq -f 'é%.0f' 1 {count}; exit 5"
    terminal = shared.terminal(command=["bash", "-c", command])
    seen = b"".join(terminal)
    assert (terminal.dropped, terminal.exit_code) == (0, 5)
    assert seen.decode() == "".join(f"é{number}\n" for number in range(1, count + 1))
    terminal.kill()


def test_a_viewer_that_does_not_read_holds_nobody_up(shared: Sandbox) -> None:
    terminal = shared.terminal(command=["bash", "-c", "read go; seq 1 1000000; exit 4"])
    with shared.attach(terminal.id, viewer=True):
        terminal.write("\n")
        last = b""
        for data in terminal:
            last = (last + data)[-64:]
        assert last.endswith(b"1000000\r\n")
        assert terminal.exit_code == 4
    terminal.kill()


def test_late_readers_get_output_and_exit_code(shared: Sandbox) -> None:
    terminal = shared.terminal(command="echo was here; exit 9")
    assert terminal.wait(timeout=BOUND) == 9
    terminal.close()
    with shared.attach(terminal.id, viewer=True) as late:
        assert b"".join(late) == b"was here\r\n"
        assert late.exit_code == 9
    assert terminal.id in [info.id for info in shared.terminals()]
    terminal.kill()
    assert terminal.id not in [info.id for info in shared.terminals()]


def test_a_terminal_outlives_the_server(platform: Platform, sb: Sandbox) -> None:
    command = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i; sleep 0.02; done; exit 6"
    terminal = sb.terminal(command=command)
    seen = terminal.read_until("20\r\n", timeout=BOUND)
    platform.restart()
    seen += b"".join(terminal)
    assert seen.split() == [str(number).encode() for number in range(1, 301)]
    assert (terminal.exit_code, terminal.dropped) == (6, 0)
    terminal.close()
