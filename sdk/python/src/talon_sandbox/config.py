"""Where the server is and which key opens it: the only reader of the environment and of the configuration file.

Order: arguments, then TALON_SANDBOX_SERVER and TALON_SANDBOX_API_KEY, then the current context of the configuration
file, then the key that a local server left in $TALON_HOME/admin.key. Invariant: a key from the file or from admin.key
is sent only to the server it belongs to.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import ConfigError

LOCAL_SERVER = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Config:
    """A server's base URL and the key for it (empty: none was found)."""

    server: str
    api_key: str = field(repr=False, default="")


@dataclass(slots=True)
class ConfigFile:
    """Named contexts, each a server and its key, and which one is current. Kept as TOML, mode 0600."""

    path: Path
    current: str = ""
    contexts: dict[str, Config] = field(default_factory=dict)

    def save(self) -> None:
        """Write the file at once (rename over the old one), readable by its owner only."""
        lines = [f"current = {json.dumps(self.current)}"]
        for name, config in sorted(self.contexts.items()):
            lines += ["", f"[contexts.{json.dumps(name)}]", f"server = {json.dumps(config.server)}"]
            lines += [f"api_key = {json.dumps(config.api_key)}"]
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        draft.replace(self.path)


def config_path(explicit: str | None = None) -> Path:
    """The configuration file: argument, TALON_SANDBOX_CONFIG, or the XDG place."""
    named = explicit or os.environ.get("TALON_SANDBOX_CONFIG")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "talon-sandbox" / "config.toml"


def load_file(explicit: str | None = None) -> ConfigFile:
    """Read the configuration file; one that does not exist is empty. ConfigError when others can read it."""
    path = config_path(explicit)
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ConfigFile(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}", cause=str(error), code="config_unreadable") from error
    if mode & 0o077:
        raise ConfigError(
            f"{path} can be read by other users, and it holds keys",
            code="config_not_private",
            remedy=f"chmod 600 {path}",
        )
    return _parsed(path, text)


def _parsed(path: Path, text: str) -> ConfigFile:
    import tomllib

    try:
        data: dict[str, Any] = tomllib.loads(text)
        contexts = {
            name: Config(str(entry["server"]), str(entry.get("api_key", "")))
            for name, entry in data.get("contexts", {}).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not a configuration file of tsb",
            code="config_invalid",
            cause=str(error),
            remedy="correct it, or remove it and run `tsb login`",
        ) from error
    return ConfigFile(path, str(data.get("current", "")), contexts)


def resolve(
    server: str | None = None, api_key: str | None = None, context: str | None = None, config_file: str | None = None
) -> Config:
    """The configuration to use, in the order told above."""
    chosen = _context(context or os.environ.get("TALON_SANDBOX_CONTEXT"), load_file(config_file))
    named = server or os.environ.get("TALON_SANDBOX_SERVER")
    if context and chosen:
        named = server or chosen.server
    url = (named or (chosen.server if chosen else LOCAL_SERVER)).rstrip("/")
    _check_url(url)
    key = api_key or ("" if context else os.environ.get("TALON_SANDBOX_API_KEY", ""))
    if not key and chosen and chosen.server.rstrip("/") == url:
        key = chosen.api_key
    return Config(url, key or _admin_key(url))


def _context(name: str | None, file: ConfigFile) -> Config | None:
    if not name:
        return file.contexts.get(file.current)
    if name not in file.contexts:
        raise ConfigError(
            f"there is no context {name!r} in {file.path}",
            code="context_unknown",
            remedy=f"use one of: {', '.join(sorted(file.contexts)) or 'none yet'}; or create it with `tsb login`",
        )
    return file.contexts[name]


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{url!r} is not the address of a server",
            code="server_url_invalid",
            remedy="write it as http://HOST:PORT or https://HOST",
        )


def _admin_key(url: str) -> str:
    """The key a server on this machine wrote for its owner; never sent elsewhere."""
    if urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1"):
        return ""
    try:
        return (Path(os.environ.get("TALON_HOME") or "/var/lib/talon") / "admin.key").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
