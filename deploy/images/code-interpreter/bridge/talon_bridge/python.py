"""A forked Python kernel: ipykernel, set up for clients that are programs.

Runs in the child of a warmed parent. Standard output and error are the bridge's pipes, unbuffered, so that prints,
libraries in C and child processes keep their order and are held back by a slow reader.
"""

import io
import logging
import os
import sys
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from traitlets.config import Config

from . import rich


def serve(order: dict[str, Any]) -> None:
    """Be the kernel until it ends."""
    os.environ.clear()
    os.environ.update(order["env"])
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
    os.chdir(order["cwd"])
    sys.path.insert(0, "")
    sys.argv = [""]
    sys.stdout, sys.stderr = _stream(1), _stream(2)
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
    app = IPKernelApp.instance(config=_config(), connection_file=order["connection"], log_level=logging.CRITICAL)
    app.initialize([])
    rich.install(app.shell)
    app.start()


def _stream(fd: int) -> io.TextIOWrapper:
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)  # type: ignore[arg-type]


def _config() -> Config:
    config = Config()
    config.IPKernelApp.outstream_class = None
    config.IPKernelApp.quiet = True
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.cache_size = 0
    config.InlineBackend.figure_formats = {"png", "svg"}
    return config
