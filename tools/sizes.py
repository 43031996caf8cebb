"""Fails when a hand-written source file has more than 400 lines, or a function more than 80; run by scripts/check.

Generated files, locks and API specifications are exempt: nobody reads them from top to bottom.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 400
FUNCTION_LINES = 80
SOURCES = {".py", ".rs", ".ts", ".tsx", ".js", ".mjs", ".go", ".cs", ".java", ".sh", ".css", ".html"}
GENERATED = re.compile(r"(_gen\.py|/_sync/|/generated/|/migrations/versions/|\.gen\.)")
RUST_FUNCTION = re.compile(r"^(\s*)(pub(\([a-z]+\))? )?(const )?(async )?(unsafe )?fn (\w+)")
ROOT = Path(__file__).resolve().parent.parent


def sources() -> Iterator[Path]:
    """The tracked source files that people write."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and not GENERATED.search(name) and (path.suffix in SOURCES or name.startswith("scripts/")):
            yield path


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, first line and length of each function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def rust_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """The same for Rust as rustfmt writes it: a function ends at the brace in its own column."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if not (found := RUST_FUNCTION.match(line)) or line.rstrip().endswith(("}", ";")):
            continue
        close = found.group(1) + "}"
        end = next((n for n in range(start, len(lines)) if lines[n].rstrip() == close), start)
        yield found.group(7), start + 1, end - start + 1


def faults(path: Path) -> Iterator[str]:
    """What is too large in one file."""
    text = path.read_text(errors="replace")
    name, lines = path.relative_to(ROOT), text.count("\n")
    if lines > FILE_LINES:
        yield f"{name}: {lines} lines, {FILE_LINES} are allowed: split it by noun"
    functions = {".py": python_functions, ".rs": rust_functions}.get(path.suffix)
    for function, line, length in functions(text) if functions else ():
        if length > FUNCTION_LINES:
            yield f"{name}:{line}: {function} has {length} lines, {FUNCTION_LINES} are allowed"


def main() -> int:
    found = [fault for path in sources() for fault in faults(path)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
