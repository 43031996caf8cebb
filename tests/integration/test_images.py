"""Images: from a real registry, open and behind a login, from archives; other names; removal while in use."""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from talon_sandbox import NotFoundError, TalonError
from tests.framework.platform import Platform
from tests.framework.registry import Registry

# htpasswd's bcrypt of "open sesame".
SESAME = "$2a$05$bjlPQmsUi46r71d27Ap3kOUBgfku9OiDxzBx9AwK0CaRUwUIiaNEK"


def layer(*files: tuple[str, str]) -> bytes:
    """A tar archive of files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content.encode()))
    return buffer.getvalue()


def scratch_image(place: Path, message: str) -> Path:
    """An OCI layout with two layers; the second hides a file of the first."""
    layout = place / "layout"
    (layout / "blobs" / "sha256").mkdir(parents=True)

    def blob(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (layout / "blobs" / "sha256" / digest).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    layers = [layer(("greeting", message), ("hidden", "no")), layer(("second", "layer"), (".wh.hidden", ""))]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["FROM_IMAGE=yes"], "WorkingDir": "/srv"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(gzip.compress(one), "layer.v1.tar+gzip") for one in layers],
    }
    described = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    described["annotations"] = {"org.opencontainers.image.ref.name": "app"}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return layout


def push(layout: Path, registry: Registry, name: str, *words: str) -> str:
    reference = f"{registry.address}/{name}"
    command = [
        "skopeo",
        "copy",
        "--quiet",
        "--dest-tls-verify=false",
        *words,
        f"oci:{layout}:app",
        f"docker://{reference}",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return reference


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry(tmp_path / "registry") as running:
        yield running


def test_pull(platform: Platform, registry: Registry, tmp_path: Path) -> None:
    reference = push(scratch_image(tmp_path, "hello from the registry"), registry, "team/app:1")
    image = platform.client.images.pull(reference, name="pulled", insecure=True)
    assert image.name == "pulled"
    with platform.sandbox(image="pulled") as sandbox:
        assert sandbox.fs.read_text("/greeting") == "hello from the registry"
        assert not sandbox.fs.exists("/hidden")
        platform.client.images.delete("pulled")
        assert sandbox.fs.read_text("/second") == "layer", "a running sandbox keeps its layers"
    with pytest.raises(NotFoundError):
        platform.client.images.get("pulled")


def test_pull_what_is_not_there(platform: Platform, registry: Registry) -> None:
    with pytest.raises(TalonError) as caught:
        platform.client.images.pull(f"{registry.address}/nothing:1", insecure=True)
    assert caught.value.remedy


def test_login(platform: Platform, tmp_path: Path) -> None:
    layout = scratch_image(tmp_path, "secret")
    with Registry(tmp_path / "closed", SESAME) as closed:
        reference = push(layout, closed, "app:1", "--dest-creds", "tester:open sesame")
        with pytest.raises(TalonError) as caught:
            platform.client.images.pull(reference, name="closed", insecure=True)
        assert caught.value.code in ("registry_unauthorized", "image_pull_failed")
        options = {"username": "tester", "password": "open sesame", "insecure": True}
        assert platform.client.images.pull(reference, name="closed", **options).name == "closed"
    platform.client.images.delete("closed")
    assert "open sesame" not in platform.log.read_text(errors="replace")


def test_import_what_docker_saved(platform: Platform, tmp_path: Path) -> None:
    archive = tmp_path / "saved.tar"
    layout = scratch_image(tmp_path, "from an archive")
    for kind in ("oci-archive", "docker-archive"):
        archive.unlink(missing_ok=True)
        subprocess.run(
            ["skopeo", "copy", "--quiet", f"oci:{layout}:app", f"{kind}:{archive}:app:1"],
            check=True,
            capture_output=True,
        )
        steps = list(platform.client.images.import_progress(archive.read_bytes(), "saved"))
        assert steps[-1]["image"]["layers"] == 2
    platform.client.images.delete("saved")


def test_import_a_root_file_system(platform: Platform) -> None:
    for _ in platform.client.images.import_progress(layer(("etc/imported", "yes")), "imported"):
        pass
    with platform.sandbox(image="imported") as sandbox:
        assert sandbox.fs.read_text("/etc/imported") == "yes"
    platform.client.images.delete("imported")


@pytest.mark.parametrize("content", [b"", b"no archive at all", b"\0" * 2048])
def test_archives_that_are_none(platform: Platform, content: bytes) -> None:
    with pytest.raises(TalonError) as caught:
        for _ in platform.client.images.import_progress(content, "nonsense"):
            pass
    assert caught.value.remedy


def test_other_names(platform: Platform) -> None:
    platform.client.images.alias("base", "python-for-tests")
    with platform.sandbox(image="python-for-tests") as sandbox:
        assert sandbox.run("python3 -c 'print(1)'").stdout == "1\n"


def test_base_has_what_it_promises(platform: Platform) -> None:
    with platform.sandbox() as sandbox:
        for program in ("bash", "python3", "pip3", "git", "curl", "ps"):
            assert sandbox.run(f"command -v {program}").exit_code == 0, program
        assert sandbox.run("python3 -m venv --help").exit_code == 0
        assert sandbox.run("echo $LANG; id -un; pwd; getent passwd nobody >/dev/null && echo ok").stdout == (
            "C.UTF-8\nsandbox\n/workspace\nok\n"
        )
        assert sandbox.run("ls /etc/ssl/certs/ca-certificates.crt").exit_code == 0
