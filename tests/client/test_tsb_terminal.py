"""`tsb pty` inside a real pseudo terminal: keys, size, a full-screen program, detaching, the exit code."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios

from tests.framework.platform import Platform
from tests.framework.waiting import until


class Window:
    """A program on a pseudo terminal of this machine."""

    def __init__(self, platform: Platform, *words: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        env = {**platform.environment, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(words, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        self.seen = b""

    def expect(self, text: str) -> None:
        until(lambda: self._look() and text.encode() in self.seen, f"{text!r} is shown", step_s=0.01)
        self.seen = self.seen.partition(text.encode())[2]

    def _look(self) -> bool:
        while select.select([self.master], [], [], 0.05)[0]:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                break
        return True

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> int:
        until(lambda: self._look() and self.process.poll() is not None, "the program ends")
        os.close(self.master)
        return self.process.returncode


def test_a_shell_its_size_and_its_exit_code(platform: Platform) -> None:
    with platform.sandbox() as sandbox:
        window = Window(platform, "tsb", "pty", sandbox.id, "bash", "--norc")
        window.expect("$ ")
        window.type(b"stty size\r")
        window.expect("30 100")
        window.type(b"exit 9\r")
        assert window.end() == 9


def test_leaving_and_coming_back(platform: Platform) -> None:
    with platform.sandbox() as sandbox:
        window = Window(platform, "tsb", "pty", sandbox.id, "bash", "--norc")
        window.expect("$ ")
        window.type(b"echo first $((40 + 2))\r")
        window.expect("first 42")
        window.type(b"\x10\x11")
        assert window.end() == 0
        (terminal,) = sandbox.terminals()
        assert terminal.id in platform.command("tsb", "ps", sandbox.id).stdout
        until(lambda: sandbox.terminals()[0].clients == 0, "the client is gone")
        again = Window(platform, "tsb", "attach", sandbox.id, terminal.id)
        again.expect("first 42")
        again.type(b"exit 4\r")
        assert again.end() == 4


def test_without_a_terminal_it_says_what_to_do(platform: Platform) -> None:
    with platform.sandbox() as sandbox:
        done = platform.command("tsb", "pty", sandbox.id)
        assert done.returncode == 1
        assert "tsb run -i" in done.stderr
        assert platform.command("tsb", "run", "-i", sandbox.id, "cat", stdin="x\n").stdout == "x\n"
