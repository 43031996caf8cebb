"""Talon's Python SDK: isolated sandboxes for untrusted code, from synchronous and asynchronous programs.

    from talon_sandbox import Sandbox

    with Sandbox.create(image="base", ttl="10m") as sb:
        print(sb.run("echo hello").stdout)

`AsyncSandbox` and `AsyncClient` have the same methods to await. Names are loaded when they are first used, so that
importing the package, and with it `tsb --version`, costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from ._async.client import AsyncClient as AsyncClient
    from ._async.files import AsyncFiles as AsyncFiles
    from ._async.process import AsyncProcess as AsyncProcess
    from ._async.sandbox import AsyncSandbox as AsyncSandbox
    from ._async.terminal import AsyncTerminal as AsyncTerminal
    from ._sync.client import Client as Client
    from ._sync.files import Files as Files
    from ._sync.process import Process as Process
    from ._sync.sandbox import Sandbox as Sandbox
    from ._sync.terminal import Terminal as Terminal
    from .errors import AuthError as AuthError
    from .errors import CommandError as CommandError
    from .errors import ConfigError as ConfigError
    from .errors import ConflictError as ConflictError
    from .errors import InvalidRequestError as InvalidRequestError
    from .errors import NetworkError as NetworkError
    from .errors import NotFoundError as NotFoundError
    from .errors import PermissionDeniedError as PermissionDeniedError
    from .errors import QuotaError as QuotaError
    from .errors import RateLimitError as RateLimitError
    from .errors import ServerError as ServerError
    from .errors import TalonError as TalonError
    from .errors import TalonTimeoutError as TalonTimeoutError
    from .errors import TransferError as TransferError
    from .models import ApiKey as ApiKey
    from .models import FileInfo as FileInfo
    from .models import Image as Image
    from .models import LogChunk as LogChunk
    from .models import Match as Match
    from .models import Metrics as Metrics
    from .models import Pool as Pool
    from .models import Port as Port
    from .models import ProcessInfo as ProcessInfo
    from .models import Result as Result
    from .models import SandboxInfo as SandboxInfo
    from .models import Snapshot as Snapshot
    from .models import TerminalInfo as TerminalInfo
    from .models import Transfer as Transfer
    from .models import Volume as Volume
    from .retry import RetryPolicy as RetryPolicy

_HOMES = {
    "_async.client": "AsyncClient",
    "_async.files": "AsyncFiles",
    "_async.process": "AsyncProcess",
    "_async.sandbox": "AsyncSandbox",
    "_async.terminal": "AsyncTerminal",
    "_sync.client": "Client",
    "_sync.files": "Files",
    "_sync.process": "Process",
    "_sync.sandbox": "Sandbox",
    "_sync.terminal": "Terminal",
    "errors": "AuthError CommandError ConfigError ConflictError InvalidRequestError NetworkError NotFoundError "
    "PermissionDeniedError QuotaError RateLimitError ServerError TalonError TalonTimeoutError TransferError",
    "models": "ApiKey FileInfo Image LogChunk Match Metrics Pool Port ProcessInfo Result SandboxInfo Snapshot "
    "TerminalInfo Transfer Volume",
    "retry": "RetryPolicy",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
