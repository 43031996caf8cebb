"""Makes server/src/talon_server/errors_gen.py of api/errors.yaml; `--check` only says whether it is up to date."""

import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "api" / "errors.yaml"
TARGET = ROOT / "server" / "src" / "talon_server" / "errors_gen.py"

HEAD = '''"""The catalogue of error codes. Made by tools/gen_errors.py of api/errors.yaml: change that, not this."""

from typing import NamedTuple


class Entry(NamedTuple):
    status: int
    message: str
    remedy: str
    retryable: bool


CATALOGUE = {
'''


def render() -> str:
    """The module's text."""
    lines = [HEAD]
    for code, entry in yaml.safe_load(SOURCE.read_text()).items():
        fields = (entry["status"], entry["message"], entry["remedy"], entry.get("retryable", False))
        lines.append(f"    {_quoted(code)}: Entry(\n")
        lines.extend(f"        {_quoted(field) if isinstance(field, str) else field},\n" for field in fields)
        lines.append("    ),\n")
    return "".join([*lines, "}\n"])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main() -> int:
    text = render()
    if "--check" in sys.argv:
        if TARGET.read_text() == text:
            return 0
        print("errors_gen.py is out of date: run `make gen`")
        return 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
