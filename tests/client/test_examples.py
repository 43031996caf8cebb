"""Every program in examples/ runs and ends well."""

import sys
from pathlib import Path

import pytest

from tests.framework.platform import ROOT, Platform


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_example(platform: Platform, example: str) -> None:
    done = platform.command(sys.executable, str(Path(ROOT, "examples", example)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
