"""OpenSandbox's JavaScript SDK, installed from npm, run by node: `scenario.mjs`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conformance.opensandbox.live import IMAGE, Live

HERE = Path(__file__).parent
PACKAGE = "@alibaba-group/opensandbox@0.1.11"
BOUND_S = 300


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the SDK installed and the scenario in it."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    home = tmp_path_factory.mktemp("javascript")
    (home / "package.json").write_text('{"private": true, "type": "module"}')
    install = ["npm", "install", "--no-audit", "--no-fund", "--silent", PACKAGE]
    subprocess.run(install, cwd=home, check=True, timeout=BOUND_S, capture_output=True)
    shutil.copy(HERE / "scenario.mjs", home)
    return home


@pytest.mark.parametrize("through_server", ["false", "true"])
def test_the_javascript_sdk(live: Live, project: Path, through_server: str) -> None:
    env = {**os.environ, "DOMAIN": live.domain, "API_KEY": live.key, "IMAGE": IMAGE, "THROUGH_SERVER": through_server}
    node = ["node", "scenario.mjs"]
    done = subprocess.run(node, cwd=project, env=env, capture_output=True, text=True, timeout=BOUND_S)
    assert done.returncode == 0, done.stdout + done.stderr
