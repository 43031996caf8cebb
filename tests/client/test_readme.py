"""The blocks of README.md, run as they stand; the Chinese page must have the same ones."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.framework.platform import ROOT, Platform

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(name: str, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall((ROOT / name).read_text()) if kind == language]


def bare(text: str) -> str:
    """A block without its comments, which are translated."""
    return re.sub(r" +# .*$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("language", ["sh", "python"])
def test_both_languages_show_the_same(language: str) -> None:
    assert [bare(text) for text in blocks("README.zh-CN.md", language)] == [
        bare(text) for text in blocks("README.md", language)
    ]


def test_the_shell_block(platform: Platform, tmp_path: Path) -> None:
    (script,) = blocks("README.md", "sh")
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=platform.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "45"
    assert lines[1].startswith("Linux ")
    assert "hello" in lines
    assert any("base" in line for line in lines)


@pytest.mark.parametrize("number", [0, 1])
def test_the_python_blocks(platform: Platform, number: int) -> None:
    program = blocks("README.md", "python")[number].replace("127.0.0.1:8080", f"127.0.0.1:{platform.port}")
    done = platform.command(sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [["45"], ["hello"]][number]
