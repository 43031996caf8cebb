"""`tsb` against a real server: what scripts rely on, exit codes above all."""

from pathlib import Path

from tests.framework.platform import Platform
from tests.framework.waiting import until


def test_run_passes_output_and_exit_code_on(platform: Platform) -> None:
    done = platform.command("tsb", "run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.returncode) == ("out\n", 7)
    assert "err" in done.stderr
    assert platform.client.list(state="running") == []


def test_run_reads_standard_input(platform: Platform) -> None:
    done = platform.command("tsb", "run", "-i", "--", "python3", "-", stdin="print(6 * 7)")
    assert done.stdout == "42\n"


def test_errors_say_what_to_do(platform: Platform) -> None:
    done = platform.command("tsb", "info", "nothing-of-that-name")
    assert done.returncode == 4
    assert "List the sandboxes" in done.stderr
    done = platform.command("tsb", "create", "--resources", "memory=4 gigs")
    assert done.returncode == 1
    assert "4 gigs" in done.stderr


def test_copying_and_following(platform: Platform, tmp_path: Path) -> None:
    id = platform.command("tsb", "create", "--ttl", "10m", "-o", "id").stdout.strip()
    try:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "f").write_text("content")
        assert platform.command("tsb", "cp", str(tmp_path / "d"), f"{id}:/workspace/").returncode == 0
        assert platform.command("tsb", "cp", f"{id}:/workspace/d/f", "-").stdout == "content"
        process = platform.command("tsb", "spawn", id, "for i in 1 2 3; do echo $i; sleep 0.1; done").stdout.strip()
        assert platform.command("tsb", "logs", "-f", id, process).stdout == "1\n2\n3\n"
        assert process in platform.command("tsb", "ps", id).stdout
    finally:
        assert platform.command("tsb", "rm", id).returncode == 0
    until(lambda: id not in platform.command("tsb", "ls").stdout, "it is no longer listed")


def test_the_key_of_a_local_server_is_found(platform: Platform) -> None:
    """Without any configuration: the address is enough, the key is in the home."""
    assert platform.command("env", "-u", "TALON_SANDBOX_API_KEY", "tsb", "ls").returncode == 0
