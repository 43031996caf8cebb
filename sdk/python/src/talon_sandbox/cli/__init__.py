"""The command line `tsb`. This module is the console script's entry: it loads nothing until a command needs it."""

from __future__ import annotations

import sys

from .._version import __version__


def main() -> int:
    """Run `tsb` with the process's arguments and give its exit code."""
    if sys.argv[1:] == ["--version"]:
        print(f"tsb {__version__}")
        return 0
    from .app import run

    return run(sys.argv[1:])
