"""The replay page of a recording, `/recordings/{id}`, and its one-file form, `/v2/recordings/{id}/export`.

The page is open to everyone and holds no data: it asks for a key in the browser and fetches with that. The player of
terminals, asciinema-player, comes from npm (`console/`); where it is not installed the page shows their text instead.
"""

import asyncio
import html
import json
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from talon_server.api.services import Services
from talon_server.api.v2.http import Call, endpoint, failure
from talon_server.api.v2.recordings import described
from talon_server.errors import TalonError

PAGES = Path(__file__).parent.parent / "pages"
PLAYER = Path(__file__).parents[5] / "console" / "node_modules" / "asciinema-player" / "dist" / "bundle"
_ASSETS = {
    "recording.css": PAGES / "recording.css",
    "recording.js": PAGES / "recording.js",
    "player.css": PLAYER / "asciinema-player.css",
    "player.js": PLAYER / "asciinema-player.min.js",
}
_MOST_EXPORTED = 256 << 20
_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self' data:; img-src data:; font-src data:; worker-src blob:; base-uri 'none'; form-action 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


async def page(_request: Request) -> Response:
    """The page that fetches its recording itself."""
    names = [name for name, file in _ASSETS.items() if file.exists()]
    styles = "".join(f'<link rel="stylesheet" href="/recordings/assets/{n}">\n' for n in names if n.endswith(".css"))
    scripts = "".join(
        f'<script src="/recordings/assets/{name}"></script>\n'
        for name in ("player.js", "recording.js")
        if name in names
    )
    text = (PAGES / "recording.html").read_text()
    text = text.replace("<!-- styles -->", styles).replace("<!-- scripts -->", scripts).replace("<!-- data -->", "")
    return HTMLResponse(text, headers=_HEADERS)


async def asset(request: Request) -> Response:
    """A style or script of the page."""
    file = _ASSETS.get(request.path_params["name"])
    if file is None or not file.exists():
        return failure(TalonError("not_found", "there is no such file of the page"), request)
    return FileResponse(file, headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "max-age=3600"})


async def export(call: Call) -> Response:
    """Page, player and data in one file."""
    recordings = call.services.recordings
    info = recordings.get(call.principal, call.path("id"))
    if info.size_bytes > _MOST_EXPORTED:
        raise TalonError(
            "request_too_large", "the recording is too large for one page", remedy="Download its timeline."
        )
    meta = await described(recordings, call.principal, info)
    records = await asyncio.to_thread(lambda: list(recordings.files.records(info.id)))
    told = json.dumps({"meta": meta, "records": records}, ensure_ascii=False)
    data = told.replace("<", "\\u003c")  # nothing that was recorded may end the script element or begin another
    styles = "".join(f"<style>\n{file.read_text()}\n</style>\n" for file in _present(".css"))
    scripts = "".join(f"<script>\n{_inline(file.read_text())}\n</script>\n" for file in _present(".js"))
    text = (PAGES / "recording.html").read_text().replace("<title>Recording", f"<title>{html.escape(info.id)}")
    text = text.replace("<!-- styles -->", styles)
    text = text.replace("<!-- data -->", f'<script id="data" type="application/json">{data}</script>')
    text = text.replace("<!-- scripts -->", scripts)
    name = f'attachment; filename="{info.id}.html"'
    return HTMLResponse(text, headers={"Content-Disposition": name})


def _present(suffix: str) -> list[Path]:
    order = ("player.css", "recording.css", "player.js", "recording.js")
    return [_ASSETS[name] for name in order if name.endswith(suffix) and _ASSETS[name].exists()]


def _inline(script: str) -> str:
    return script.replace("</script", "<\\/script")


def routes(services: Services) -> list[Route]:
    """The routes of this module."""
    return [
        Route("/recordings/assets/{name}", asset, methods=["GET"]),
        Route("/recordings/{id}", page, methods=["GET"]),
        Route("/v2/recordings/{id}/export", endpoint(services, export), methods=["GET"]),
    ]
