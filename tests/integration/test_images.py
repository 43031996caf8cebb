"""Images: from a real registry, open and behind a login, from archives; other names; removal while in use."""

import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from talon_sandbox import NotFoundError, TalonError
from tests.framework.platform import Platform
from tests.framework.registry import Registry

# htpasswd's bcrypt of "open sesame".
SESAME = "$2a$05$bjlPQmsUi46r71d27Ap3kOUBgfku9OiDxzBx9AwK0CaRUwUIiaNEK"


def scratch_image(place: Path, message: str) -> Path:
    """An OCI layout with two layers, made by umoci: a copy of a static program and a text."""
    layout = place / "layout"
    umoci("init", "--layout", str(layout))
    umoci("new", "--image", f"{layout}:app")
    for number, (name, content) in enumerate((("greeting", message), ("second", "layer"))):
        source = place / f"file{number}"
        source.write_text(content)
        umoci("insert", "--image", f"{layout}:app", str(source), f"/{name}")
    umoci("config", "--image", f"{layout}:app", "--config.env", "FROM_IMAGE=yes", "--config.workingdir", "/srv")
    return layout


def umoci(*words: str) -> None:
    subprocess.run(["umoci", *words], check=True, capture_output=True)


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


def test_import_a_root_file_system(platform: Platform) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("etc/imported")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"yes"))
    for _ in platform.client.images.import_progress(buffer.getvalue(), "imported"):
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
