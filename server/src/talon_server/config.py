"""The server's configuration: one typed tree, and the only reader of the environment.

Sources, later ones win: the defaults here, `<home>/config.toml`, `TALON_<SECTION>_<NAME>` variables, the command
line. Unknown keys are errors. `talon-server config` prints what is in force.
"""

import os
import tomllib
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from talon_server.errors import TalonError

DEFAULT_HOME = Path("/var/lib/talon")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Listen(_Section):
    """Where the API listens. `domain` is the suffix of host-name previews; `public_url` what clients see."""

    host: str = "127.0.0.1"
    port: int = 8080
    domain: str = ""
    public_url: str = ""
    certificate: Path | None = None
    key: Path | None = None


class Defaults(_Section):
    """What a sandbox gets that does not ask. Sizes in bytes; `network` is a mode, `recording` too."""

    image: str = "base"
    cpu: float = 1.0
    memory_bytes: int = 512 << 20
    disk_bytes: int = 4 << 30
    pids: int = 1024
    network: Literal["open", "allowlist", "sealed"] = "open"
    recording: Literal["off", "terminals", "all"] = "all"


class Limits(_Section):
    """Bounds of what one sandbox and the host may have; 0 = none."""

    cpu: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 64 << 30
    pids: int = 32768
    ttl_s: float = 0.0
    sandboxes: int = 4000
    creates_at_once: int = 8
    queue_length: int = 10000
    queue_timeout_s: float = 30.0
    body_bytes: int = 2 << 20


class Pool(_Section):
    """The shell pool: how many ready shells at least and at most."""

    minimum: int = 4
    maximum: int = 64


class Network(_Section):
    """Addresses of sandboxes (none: a /16 of 10.0.0.0/8 that is free), and the resolvers asked for names (empty: the
    host's own; `address` or `address#port`)."""

    addresses: IPv4Network | None = None
    resolvers: tuple[str, ...] = ()


class Images(_Section):
    """`aliases`: other names of images."""

    aliases: Mapping[str, str] = Field(
        default_factory=lambda: {
            "python:3.12": "base",
            "python:3.11": "base",
            "python": "base",
            "ubuntu": "base",
            "debian": "base",
        }
    )


class Volumes(_Section):
    """`host_allow`: directories of the host that may be mounted, none by default. `everywhere`: which of
    them every sandbox has, and where."""

    host_allow: tuple[Path, ...] = ()
    everywhere: Mapping[Path, str] = Field(default_factory=dict)


class Hardening(_Section):
    """What sandboxes must do without, beyond the usual. `capabilities` none: not even root has any, so that package
    managers fail. `landlock`: only the workspace, homes, scratch and volumes can be changed, not the image."""

    capabilities: Literal["packages", "none"] = "packages"
    landlock: bool = False


class Execd(_Section):
    """`loopback`: each sandbox's agent answers on 127.0.0.1:44772 inside it too, without token only that it lives and how
    it is hardened."""

    loopback: bool = False


class Tracing(_Section):
    """OpenTelemetry: `endpoint` takes traces over OTLP/HTTP (for instance http://127.0.0.1:4318/v1/traces); empty: off."""

    endpoint: str = ""


class Retention(_Section):
    """How long ended sandboxes stay visible, and recordings kept (seconds, bytes; 0 = for ever)."""

    ended_s: float = 3600.0
    recordings_s: float = 30 * 86400.0
    recordings_bytes: int = 20 << 30


class Config(_Section):
    """The whole tree. `home` holds all state; `agent` is the talon-agent binary; `runtime` crun, runc or empty."""

    home: Path = DEFAULT_HOME
    agent: Path | None = None
    runtime: str = ""
    disk_image_bytes: int = 0
    listen: Listen = Listen()
    defaults: Defaults = Defaults()
    limits: Limits = Limits()
    pool: Pool = Pool()
    network: Network = Network()
    images: Images = Field(default_factory=Images)
    volumes: Volumes = Field(default_factory=Volumes)
    hardening: Hardening = Hardening()
    execd: Execd = Execd()
    retention: Retention = Retention()
    tracing: Tracing = Tracing()


def load(overrides: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Config:
    """The configuration in force. `overrides` has dotted names. Raises invalid_request naming what is wrong."""
    environment = os.environ if environment is None else environment
    home = Path(overrides.get("home") or environment.get("TALON_HOME") or DEFAULT_HOME)
    tree: dict[str, Any] = _from_file(home / "config.toml")
    for name, value in _from_environment(environment).items():
        _put(tree, name, value)
    for name, value in overrides.items():
        if value is not None:
            _put(tree, name, value)
    tree["home"] = home
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TalonError("invalid_request", f"the configuration's {where} is not valid", cause=first["msg"]) from error


def _from_file(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise TalonError("invalid_request", f"{path} is not TOML", cause=str(error)) from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for section, field in Config.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, _Section):
            names = {f"{section}.{name}": f"TALON_{section}_{name}".upper() for name in inner.model_fields}
        else:
            names = {section: f"TALON_{section}".upper()}
        found.update({dotted: environment[name] for dotted, name in names.items() if name in environment})
    return found


def _put(tree: dict[str, Any], dotted: str, value: object) -> None:
    *sections, name = dotted.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise TalonError("invalid_request", f"the configuration's {section} is a section, not a value")
    tree[name] = value
