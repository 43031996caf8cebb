"""OpenSandbox's own Python SDK, unchanged, against a live server: what its users do all day."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from opensandbox import Sandbox, SandboxManager, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)
from opensandbox.models.sandboxes import PVC, NetworkPolicy, NetworkRule, SandboxFilter, SnapshotFilter, Volume

from tests.conformance.opensandbox.live import IMAGE, Live

BOUND_S = 60


def config(live: Live, *, through_server: bool = False) -> ConnectionConfig:
    return ConnectionConfig(domain=live.domain, api_key=live.key, use_server_proxy=through_server)


@asynccontextmanager
async def sandbox(live: Live, *, through_server: bool = False, **wants: Any) -> AsyncIterator[Sandbox]:
    wants = {"timeout": timedelta(minutes=5), "resource": {"cpu": "1", "memory": "256Mi"}, **wants}
    source: dict[str, Any] = {} if "snapshot_id" in wants else {"image": IMAGE}
    made = await Sandbox.create(**source, connection_config=config(live, through_server=through_server), **wants)
    try:
        yield made
    finally:
        await made.kill()
        await made.close()


def text(execution: Any) -> list[str]:
    return [message.text for message in execution.logs.stdout]


def test_a_sandbox_is_running_when_create_returns(live: Live) -> None:
    async def run() -> None:
        extension = {"opensandbox.extensions.kept": "yes"}
        async with sandbox(live, metadata={"team": "a"}, env={"GREETING": "hi"}, extensions=extension) as made:
            info = await made.get_info()
            assert info.status.state == "Running"
            assert info.entrypoint == ["tail", "-f", "/dev/null"]
            assert info.metadata == {"team": "a"}
            assert info.extensions == extension
            assert info.image is not None
            assert info.image.image == IMAGE
            assert info.expires_at is not None
            assert abs((info.expires_at - info.created_at).total_seconds() - 300) < 5
            assert await made.is_healthy()
            assert text(await made.commands.run("echo $GREETING")) == ["hi"]
            metrics = await made.get_metrics()
            assert metrics.memory_used_in_mib > 0
            async with await Sandbox.connect(made.id, connection_config=config(live)) as again:
                assert text(await again.commands.run("echo again")) == ["again"]

    asyncio.run(run())


@pytest.mark.parametrize("through_server", [False, True])
def test_commands(live: Live, through_server: bool) -> None:
    async def run() -> None:
        async with sandbox(live, through_server=through_server) as made:
            done = await made.commands.run("echo out; echo err >&2; exit 3")
            assert (done.exit_code, text(done)) == (3, ["out"])
            assert [message.text for message in done.logs.stderr] == ["err"]
            assert done.error is not None
            assert (done.error.name, done.error.value) == ("CommandExecError", "3")
            options = RunCommandOpts(working_directory="/tmp", envs={"A": "1"})
            assert text(await made.commands.run("pwd; echo $A", opts=options)) == ["/tmp", "1"]
            assert text(await made.commands.run(["printf", "%s\n", "$HOME"])) == ["$HOME"]
            await made.commands.set_env("LASTING", "it is")
            assert text(await made.commands.run("echo $LASTING")) == ["it is"]
            many = await made.commands.run("seq 1 2000")
            assert text(many) == [str(number) for number in range(1, 2001)]

    asyncio.run(run())


def test_background_commands_and_interruption(live: Live) -> None:
    async def run() -> None:
        async with sandbox(live) as made:
            begun = await made.commands.run("echo one; sleep 300", opts=RunCommandOpts(background=True))
            assert begun.id is not None
            logs = await made.commands.get_background_command_logs(begun.id)
            deadline = time.monotonic() + BOUND_S
            while "one" not in logs.content and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
                logs = await made.commands.get_background_command_logs(begun.id)
            assert "one" in logs.content
            assert (await made.commands.get_command_status(begun.id)).running is True
            await made.commands.interrupt(begun.id)
            while (await made.commands.get_command_status(begun.id)).running and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            assert (await made.commands.get_command_status(begun.id)).running is False

    asyncio.run(run())


def test_a_session_is_a_real_shell(live: Live) -> None:
    async def run() -> None:
        async with sandbox(live) as made:
            session = await made.commands.create_session(working_directory="/tmp")
            await made.commands.run_in_session(session, "greet() { echo hello $1; }; X=7; cd /usr")
            done = await made.commands.run_in_session(session, "greet world; echo $X; pwd; echo no >&2")
            assert text(done) == ["hello world", "7", "/usr"]
            assert [message.text for message in done.logs.stderr] == ["no"]
            await made.commands.delete_session(session)

    asyncio.run(run())


@pytest.mark.parametrize("through_server", [False, True])
def test_files(live: Live, through_server: bool) -> None:
    async def run() -> None:
        async with sandbox(live, through_server=through_server) as made:
            files = made.files
            await files.create_directories([WriteEntry(path="/tmp/d", mode=750)])
            big = bytes(range(256)) * 8192
            await files.write_files(
                [
                    WriteEntry(path="/tmp/d/a.txt", data="hello world\n", mode=640),
                    WriteEntry(path="/tmp/d/big", data=big, mode=600),
                ]
            )
            assert await files.read_file("/tmp/d/a.txt") == "hello world\n"
            assert await files.read_bytes("/tmp/d/big") == big
            assert await files.read_bytes("/tmp/d/big", range_header="bytes=256-511") == big[256:512]
            info = (await files.get_file_info(["/tmp/d/a.txt"]))["/tmp/d/a.txt"]
            assert (info.mode, info.size) == (640, 12)
            await files.replace_contents(
                [ContentReplaceEntry(path="/tmp/d/a.txt", old_content="world", new_content="there")]
            )
            assert await files.read_file("/tmp/d/a.txt") == "hello there\n"
            await files.set_permissions([SetPermissionEntry(path="/tmp/d/a.txt", mode=600)])
            await files.move_files([MoveEntry.model_validate({"src": "/tmp/d/a.txt", "dest": "/tmp/d/b.txt"})])
            found = await files.search(SearchEntry(path="/tmp/d", pattern="*.txt"))
            assert [(entry.path, entry.mode) for entry in found] == [("/tmp/d/b.txt", 600)]
            listed = await files.list_directory(DirectoryListEntry(path="/tmp/d"))
            assert {entry.path for entry in listed} == {"/tmp/d/b.txt", "/tmp/d/big"}
            await files.delete_files(["/tmp/d/b.txt"])
            await files.delete_directories(["/tmp/d"])
            assert text(await made.commands.run("ls -d /tmp/d || echo gone")) == ["gone"]

    asyncio.run(run())


def test_expiry_metadata_and_listing(live: Live) -> None:
    async def run() -> None:
        mark = uuid.uuid4().hex[:12]
        async with sandbox(live, timeout=None, metadata={"mark": mark, "b": "2"}) as made:
            assert (await made.get_info()).expires_at is None
            patched = await made.patch_metadata({"b": None, "c": "x.y_z-1"})
            assert patched.metadata == {"mark": mark, "c": "x.y_z-1"}
            manager = await SandboxManager.create(connection_config=config(live))
            try:
                wanted = SandboxFilter(states=["running"], metadata={"mark": mark, "c": "x.y_z-1"})
                page = await manager.list_sandbox_infos(wanted)
                assert [info.id for info in page.sandbox_infos] == [made.id]
                paused = await manager.list_sandbox_infos(SandboxFilter(states=["Paused"], metadata={"mark": mark}))
                assert paused.sandbox_infos == []
            finally:
                await manager.close()
        async with sandbox(live) as timed:
            later = await timed.renew(timedelta(minutes=30))
            sooner = await timed.renew(timedelta(minutes=2))
            assert sooner.expires_at < later.expires_at
            assert (await timed.get_info()).expires_at == sooner.expires_at

    asyncio.run(run())


def test_pause_and_resume_keep_what_runs(live: Live) -> None:
    async def run() -> None:
        async with sandbox(live) as made:
            await made.commands.run("sleep 1000", opts=RunCommandOpts(background=True))
            await made.pause()
            assert (await made.get_info()).status.state == "Paused"
            resumed = await Sandbox.resume(made.id, connection_config=config(live))
            try:
                assert (await resumed.get_info()).status.state == "Running"
                assert text(await resumed.commands.run("pgrep -c sleep")) == ["1"]
            finally:
                await resumed.close()

    asyncio.run(run())


def test_endpoints_of_ports(live: Live) -> None:
    async def run() -> None:
        async with sandbox(live) as made, httpx.AsyncClient(timeout=BOUND_S) as web:
            serve = "cd /tmp && echo page > index.html && exec python3 -m http.server 8000 --bind 127.0.0.1"
            await made.commands.run(serve, opts=RunCommandOpts(background=True))
            endpoint = await made.get_endpoint(8000)
            assert "://" not in endpoint.endpoint
            url = f"http://{endpoint.endpoint}/index.html"
            deadline = time.monotonic() + BOUND_S
            while (got := await web.get(url, headers=endpoint.headers)).status_code != 200:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            assert got.text == "page\n"
            assert (await web.get(url)).status_code == 401
            signed = await made.get_signed_endpoint(8000, int(time.time()) + 600)
            assert (await web.get(f"http://{signed.endpoint}/index.html")).text == "page\n"
            with pytest.raises(SandboxApiException):
                await made.get_signed_endpoint(8000, int(time.time()) - 600)

    asyncio.run(run())


def test_the_egress_policy_of_any_sandbox(live: Live) -> None:
    async def run() -> None:
        async with sandbox(live) as free:
            assert (await free.get_egress_policy()).default_action == "allow"
        rules = [NetworkRule(action="allow", target="pypi.example"), NetworkRule(action="allow", target="git.example")]
        async with sandbox(live, network_policy=NetworkPolicy(defaultAction="deny", egress=rules)) as made:
            await made.patch_egress_rules([NetworkRule(action="deny", target="pypi.example")])
            await made.delete_egress_rules(["git.example", "never.example"])
            policy = await made.get_egress_policy()
            assert policy.default_action == "deny"
            assert [(rule.action, rule.target) for rule in policy.egress or []] == [("deny", "pypi.example")]

    asyncio.run(run())


def test_a_named_volume_outlives_its_sandbox(live: Live) -> None:
    async def run() -> None:
        name = f"keep-{uuid.uuid4().hex[:8]}"
        volume = Volume(name="data", pvc=PVC(claimName=name), mountPath="/data")
        async with sandbox(live, volumes=[volume]) as first:
            assert (await first.commands.run("mkdir /data/sub && echo kept > /data/sub/f")).exit_code == 0
        inner = Volume(name="data", pvc=PVC(claimName=name), mountPath="/data", subPath="sub", readOnly=True)
        async with sandbox(live, volumes=[inner]) as second:
            assert text(await second.commands.run("cat /data/f")) == ["kept"]
            assert (await second.commands.run("touch /data/g")).exit_code != 0

    asyncio.run(run())


def test_snapshots(live: Live) -> None:
    async def run() -> None:
        manager = await SandboxManager.create(connection_config=config(live))
        async with sandbox(live) as made:
            await made.commands.run("echo frozen > /root/state")
            taken = await made.create_snapshot("mine")
            deadline = time.monotonic() + BOUND_S
            while (info := await manager.get_snapshot(taken.id)).status.state != "Ready":
                assert info.status.state == "Creating"
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            listed = await manager.list_snapshots(SnapshotFilter(sandbox_id=made.id))
            assert [(one.id, one.name) for one in listed.snapshot_infos] == [(taken.id, "mine")]
        async with sandbox(live, snapshot_id=taken.id) as copy:
            assert text(await copy.commands.run("cat /root/state")) == ["frozen"]
        await manager.delete_snapshot(taken.id)
        with pytest.raises(SandboxApiException) as gone:
            await manager.get_snapshot(taken.id)
        assert gone.value.status_code == 404
        await manager.close()

    asyncio.run(run())


def test_diagnostics(live: Live) -> None:
    async def run() -> None:
        async with sandbox(live, entrypoint=["sh", "-c", "echo from the entrypoint; sleep 1000"]) as made:
            assert "from the entrypoint" in ((await made.get_diagnostic_logs("container")).content or "")
            assert (await made.get_diagnostic_events("runtime")).content
            with pytest.raises(SandboxApiException) as unknown:
                await made.get_diagnostic_logs("nonsense")
            assert unknown.value.status_code == 400

    asyncio.run(run())


def test_errors_carry_code_and_request_id_and_the_dead_stay_visible(live: Live) -> None:
    async def run() -> None:
        manager = await SandboxManager.create(connection_config=config(live))
        async with sandbox(live) as made:
            pass
        assert (await manager.get_sandbox_info(made.id)).status.state == "Terminated"
        with pytest.raises(SandboxApiException) as missing:
            await manager.get_sandbox_info("sbx_" + "0" * 24)
        assert missing.value.status_code == 404
        assert missing.value.request_id
        await manager.close()

    asyncio.run(run())


def test_the_synchronous_sdk(live: Live) -> None:
    settings = ConnectionConfigSync(domain=live.domain, api_key=live.key)
    made = SandboxSync.create(IMAGE, connection_config=settings)
    try:
        assert text(made.commands.run("echo sync")) == ["sync"]
        made.files.write_file("/tmp/s", "kept")
        assert made.files.read_file("/tmp/s") == "kept"
    finally:
        made.kill()
        made.close()
