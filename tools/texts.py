"""Fails on dead links between the documents and on text that must not be in the tree; run by scripts/check.

Forbidden are the hosts of package registries and the paths of the machine where a change was made: both would make the
tree work in one place only.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# The names are put together here so that this file does not contain them.
FORBIDDEN = re.compile(
    r"|".join(
        (
            r"(files\.python" + r"hosted|py" + r"pi)\.org",
            r"registry\.npm" + r"js\.org",
            r"(static\.|index\.)crates" + r"\.io",
            r"proxy\.go" + r"lang\.org",
            r"repo1?\.ma" + r"ven\.",
            r"deb\.deb" + r"ian\.org|arch" + r"ive\.ubuntu\.com",
            r"(?<![\w.])/work" + r"/(main|shared)",
            r"(?<![\w.])/root" + r"/\.(cargo|pyenv)",
        )
    )
)
# Images name Debian's own archive: the sandbox's users install packages from it.
ALLOWED = {"deb.deb" + "ian.org": ("server/src/talon_server/images/", "server/src/talon_server/worker/images/")}


def tracked(*patterns: str) -> list[Path]:
    command = ["git", "ls-files", "-co", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]


def anchors(document: Path) -> set[str]:
    """The anchors that headings make, as common renderers write them."""
    headings = HEADING.findall(FENCE.sub("", document.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def dead_links(document: Path) -> Iterator[str]:
    for link in LINK.findall(FENCE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists():
            yield f"{document.relative_to(ROOT)}: {link} leads nowhere"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{document.relative_to(ROOT)}: {link}: no such heading"


def forbidden(path: Path) -> Iterator[str]:
    name = str(path.relative_to(ROOT))
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError:
        return
    for number, line in enumerate(lines, 1):
        for match in FORBIDDEN.finditer(line):
            if not name.startswith(ALLOWED.get(match.group(), ())):
                yield f"{name}:{number}: {match.group()} must not be named here"


def main() -> int:
    found = [fault for document in tracked("*.md") for fault in dead_links(document)]
    found += [fault for path in tracked() for fault in forbidden(path)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
