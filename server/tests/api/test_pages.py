"""The replay page: open to everyone, without data; its one-file form is not open, and no text in it becomes a script."""

import json
import os
from pathlib import Path

import httpx

from api.world import world
from control.world import run
from talon_server.model.recording import START, seal

HOSTILE = "</script><script>alert(1)</script><!-- <b>bold</b>"


def test_the_page_needs_no_key_and_holds_no_data(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as one, httpx.AsyncClient(base_url=f"http://127.0.0.1:{one.port}") as stranger:
            page = await stranger.get("/recordings/anything")
            assert page.status_code == 200
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert "/recordings/assets/recording.js" in page.text
            assert (await stranger.get("/recordings/assets/recording.js")).status_code == 200
            assert (await stranger.get("/recordings/assets/..%2Fdocs.html")).status_code == 404
            assert (await stranger.get("/v2/recordings/anything/export")).status_code == 401

    run(work())


def test_what_was_recorded_stays_text_in_the_exported_page(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as one:
            sandbox = (await one.http.post("/v2/sandboxes", json={"image": "base"})).json()["id"]
            files = one.services.recordings.files
            descriptor = files.open(sandbox)
            record = {"n": 0, "at": 1.0, "kind": "cmd.start", "id": "p", "command": HOSTILE, "cwd": "/", "user": "u"}
            os.write(descriptor, seal(START, record)[0])
            os.close(descriptor)
            one.host.recordings[sandbox] = sandbox
            answer = await one.http.get(f"/v2/recordings/{sandbox}/export")
            assert answer.status_code == 200, answer.text
            assert HOSTILE not in answer.text
            begun = answer.text.index('type="application/json">') + len('type="application/json">')
            data = json.loads(answer.text[begun : answer.text.index("</script>", begun)])
            assert data["records"][0]["command"] == HOSTILE
            assert data["meta"]["verified"] is True

    run(work())
