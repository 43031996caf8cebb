"""Makes server/src/talon_server/api/v2/models_gen.py of api/openapi.yaml, with datamodel-code-generator.

`--check` changes nothing and only says whether the file is up to date.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "server" / "src" / "talon_server" / "api" / "v2" / "models_gen.py"
HEAD = '"""Bodies of /v2. Made by tools/gen_models.py of api/openapi.yaml: change that, not this."""\n\n'


def render() -> str:
    """The module's text."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "models.py"
        subprocess.run(
            [
                *(sys.executable, "-W", "ignore", "-m", "datamodel_code_generator"),
                *("--input", "api/openapi.yaml", "--input-file-type", "openapi", "--output", str(output)),
                *("--output-model-type", "pydantic_v2.BaseModel", "--target-python-version", "3.11"),
                *("--use-standard-collections", "--use-union-operator", "--disable-timestamp"),
                *("--enum-field-as-literal", "all", "--field-constraints", "--use-annotated"),
                *("--collapse-root-models", "--formatters", "black"),
            ],
            cwd=ROOT,
            check=True,
            stderr=subprocess.DEVNULL,
        )
        text = output.read_text()
    return HEAD + text[text.index("from __future__") :]


def main() -> int:
    text = render()
    if "--check" not in sys.argv:
        TARGET.write_text(text)
        return 0
    if TARGET.read_text() == text:
        return 0
    print("models_gen.py is out of date: run `make gen`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
