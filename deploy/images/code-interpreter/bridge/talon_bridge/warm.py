"""Imports, before anything is forked, what a Python kernel would import as it starts.

Imported by `__main__` for this effect. debugpy is left out: no client speaks to a debugger, and it costs each kernel 100 ms.
"""

import importlib
import sys

sys.modules["debugpy"] = None  # type: ignore[assignment]
_NAMES = """ipykernel.kernelapp ipykernel.debugger ipykernel.datapub IPython.core.completerlib IPython.core.debugger
IPython.core.oinspect IPython.extensions.storemagic IPython.utils.wildcard cProfile faulthandler tornado.queues
tornado.platform.asyncio unicodedata html zmq.asyncio matplotlib_inline.config"""
for _name in _NAMES.split():
    try:
        importlib.import_module(_name)
    except ImportError:
        continue  # of another version: the kernel imports what it needs itself
del sys.modules["debugpy"]
