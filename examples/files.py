"""Write, read, list and move files of a sandbox, and copy a whole directory in and out.

python examples/files.py
"""

import tempfile
from pathlib import Path

from talon_sandbox import NotFoundError, Sandbox


def main() -> None:
    with Sandbox.create(ttl="10m") as sb, tempfile.TemporaryDirectory() as here:
        sb.fs.write_text("/workspace/notes/a.txt", "first\n")
        sb.fs.move("/workspace/notes/a.txt", "/workspace/notes/b.txt")
        print([entry.name for entry in sb.fs.list("/workspace/notes")], sb.fs.exists("/workspace/notes/a.txt"))

        project = Path(here, "project")
        (project / "src").mkdir(parents=True)
        (project / "src" / "main.py").write_text("print('from the project')\n")
        (project / "data.bin").write_bytes(bytes(range(256)) * 4096)
        sb.fs.upload(project, "/workspace/project")
        print(sb.run("python3 project/src/main.py; sha256sum < project/data.bin").stdout, end="")

        sb.run("cd project && mkdir out && seq 3 > out/result.txt", check=True)
        moved = sb.fs.download("/workspace/project", Path(here, "back"))
        print(f"{moved.files} files came back: {Path(here, 'back', 'out', 'result.txt').read_text().split()}")

        try:
            sb.fs.read_text("/workspace/none")
        except NotFoundError as error:
            print(f"{error.code}: {error.remedy}")


if __name__ == "__main__":
    main()
