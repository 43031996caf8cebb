"""Puts the server together: configuration in, one ASGI application and its open resources out.

`__main__` runs what `serve` gives. Order: store, disk, images, worker, control, gateway, dialects. Everything opened is
closed in reverse, and sandboxes go on running.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from talon_server.api import tracing, v1
from talon_server.api.audited import audited
from talon_server.api.directory import ServerDirectory
from talon_server.api.services import Services
from talon_server.api.v2.app import build as build_v2
from talon_server.config import Config
from talon_server.control.audit import Audit
from talon_server.control.events import Events
from talon_server.control.idle import IdleFreezer
from talon_server.control.images import ImageService
from talon_server.control.keys import Keys
from talon_server.control.lifecycle import Lifecycle
from talon_server.control.pools import Pools
from talon_server.control.recordings import RecordingService
from talon_server.control.registry import Registry
from talon_server.control.snapshots import Snapshots
from talon_server.control.volumes import VolumeService
from talon_server.errors import TalonError
from talon_server.gateway.listener import bounded
from talon_server.gateway.relay import Gateway, request_id_of
from talon_server.gateway.upgrade import upgrades
from talon_server.lib.tasks import Tasks
from talon_server.model.sandbox import VolumeMount
from talon_server.store.database import Database
from talon_server.store.sandboxes import SandboxStore
from talon_server.worker.assembly import HostOptions, open_host
from talon_server.worker.disk import Disk
from talon_server.worker.images.store import ImageStore
from talon_server.worker.port import WorkerPort
from talon_server.worker.recordings import Recordings
from talon_server.worker.settings import HouseRules
from talon_server.worker.volumes import Volumes

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]

DEFAULT_AGENT = Path(__file__).parents[3] / "agent" / "target" / "release" / "talon-agent"


def agent_binary(config: Config) -> Path:
    """The agent to put into sandboxes. Raises host_unsuitable when it was not built."""
    agent = config.agent or DEFAULT_AGENT
    if not agent.exists():
        raise TalonError("host_unsuitable", f"the agent {agent} does not exist", remedy="Build it: scripts/build-agent")
    return agent


@asynccontextmanager
async def open_services(config: Config) -> AsyncIterator[Services]:
    """All services on this machine, with its sandboxes adopted and the pool filling."""
    config.home.mkdir(mode=0o711, parents=True, exist_ok=True)
    config.home.chmod(0o711)
    disk = await Disk.open(config.home, config.disk_image_bytes)
    images = ImageStore.open(config.home, disk, config.images.aliases)
    volumes = Volumes(disk, config.volumes.host_allow)
    files = Recordings.at(config.home)
    options = HostOptions(
        home=config.home,
        agent=agent_binary(config),
        runtime=config.runtime,
        network=config.network.addresses,
        nameservers=config.network.resolvers,
        pool_min=config.pool.minimum,
        pool_max=config.pool.maximum,
    )
    async with open_host(options, images, disk, volumes, files) as host:
        host.rules = house_rules(config)
        async with assemble(config, host, images, volumes, files) as services:
            yield services


def house_rules(config: Config) -> HouseRules:
    """The operator's decisions, as the worker wants them told."""
    return HouseRules(
        bare=config.hardening.capabilities == "none",
        landlock=config.hardening.landlock,
        loopback=config.execd.loopback,
        mounts=tuple(VolumeMount(path, host=str(host)) for host, path in config.volumes.everywhere.items()),
    )


@asynccontextmanager
async def assemble(
    config: Config, worker: WorkerPort, images: ImageStore, volumes: Volumes, files: Recordings
) -> AsyncIterator[Services]:
    """All services over one worker, whatever it is."""
    async with AsyncExitStack() as stack:
        database = Database.open(config.home)
        stack.callback(database.close)
        audit = Audit(config.home / "audit.jsonl")
        stack.callback(audit.close)
        keys = Keys(database)
        keys.ensure_first(config.home / "admin.key")
        tasks = await stack.enter_async_context(Tasks("control"))
        events = Events()
        lifecycle = Lifecycle(config, Registry(SandboxStore(database), events), worker, images, events, tasks)
        recordings = RecordingService(database, files, lifecycle, worker, events, tasks, config.retention)
        await lifecycle.open()
        images.protect(lambda: {sandbox.image_id for sandbox in lifecycle.all()})
        pools = Pools(database, lifecycle, worker, events, tasks)
        await pools.open()
        yield Services(
            config=config,
            lifecycle=lifecycle,
            keys=keys,
            events=events,
            worker=worker,
            images=images,
            image_works=ImageService(images, tasks),
            volumes=VolumeService(volumes, lifecycle, tasks),
            snapshots=Snapshots(database, lifecycle, worker, images),
            pools=pools,
            recordings=recordings,
            audit=audit,
        )


def application(services: Services) -> tuple[Callable[[Scope, Receive, Send], Awaitable[None]], Gateway]:
    """The ASGI application: gateway first, then OpenSandbox's dialect, then the native one."""
    directory = ServerDirectory(services)
    gateway = Gateway(
        directory,
        egress=v1.egress_app(services),
        words=v1.error_words,
        domain=services.config.listen.domain,
        via_tls=services.config.listen.certificate is not None,
    )
    dialect = v1.build(services)
    native = build_v2(services)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await native(scope, receive, send)
            return
        if await gateway(scope, receive, send) or await dialect(scope, receive, send):
            return
        request_id = request_id_of(dict(scope["headers"]))
        scope["request_id"] = request_id.decode("latin-1")

        async def tagged(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        await native(scope, receive, tagged)

    return audited(app, services, services.audit), gateway


async def serve(config: Config) -> None:
    """Run the server until it is told to stop."""
    listen = config.listen
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(open_services(config))
        tracing.follow(services.events, config.tracing.endpoint)
        app, gateway = application(services)
        freezer = IdleFreezer(services.lifecycle, services.events, gateway.presence.idle_s, gateway.presence.forget)
        idle = await stack.enter_async_context(Tasks("idle"))
        idle.start("idle freezer", freezer.run())
        settings = uvicorn.Config(
            app,
            host=listen.host,
            port=listen.port,
            loop="none",
            http=bounded(),
            ws=upgrades(gateway),  # type: ignore[arg-type]  # uvicorn takes any protocol factory here
            lifespan="off",
            access_log=False,
            server_header=False,
            date_header=False,
            log_config=None,
            backlog=4096,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=3,
            ssl_certfile=str(listen.certificate) if listen.certificate else None,
            ssl_keyfile=str(listen.key) if listen.key else None,
        )
        server = uvicorn.Server(settings)
        with _bound(listen.host, listen.port) as bound:
            log.info("listening on %s:%s", *bound.getsockname()[:2])
            await server.serve(sockets=[bound])


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise TalonError(
            "host_unsuitable", f"cannot listen on {host}:{port}", cause=error.strerror, remedy="Choose another --port."
        ) from error
    return bound


def run(config: Config) -> None:
    """Run the server on uvloop, to its end."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(config))
