"""A small HTTP server that answers with scripted bytes and records what it was asked; used by the SDK's own tests.

It speaks real HTTP/1.1 over a real socket, with keep-alive and chunked bodies, and can misbehave: `Reply.cut` breaks
the connection after its body. The shapes are those of api/openapi.yaml and api/agent.yaml.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """One answer; a body of several pieces is sent chunked."""

    status: int = 200
    body: bytes | list[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


Script = Callable[[Asked], Reply]

SANDBOX: dict[str, Any] = {
    "id": "sbx_0123456789abcdef01234567",
    "name": "demo",
    "state": "running",
    "image": "base",
    "resources": {"cpu": 1, "memory_bytes": 536870912, "disk_bytes": None, "pids": 512},
    "labels": {"team": "a"},
    "created_at": "2026-01-02T03:04:05Z",
    "expires_at": None,
    "network": {"mode": "open"},
    "timings": {"total_ms": 4.2},
    "from_the_future": True,
}
SB = f"/v2/sandboxes/{SANDBOX['id']}"


def as_json(value: Any, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json", **named})


def as_events(*events: tuple[str, dict[str, Any]], cut: bool = False) -> Reply:
    pieces = [f"event: {name}\ndata: {json.dumps(fields)}\n\n".encode() for name, fields in events]
    return Reply(200, pieces, {"Content-Type": "text/event-stream"}, cut)


def as_lines(*lines: dict[str, Any]) -> Reply:
    return Reply(200, [json.dumps(line).encode() + b"\n" for line in lines], {"Content-Type": "application/x-ndjson"})


def refusal(status: int, code: str, message: str = "no", **headers: str) -> Reply:
    body = {"code": code, "message": message, "cause": "because", "remedy": "do this", "retryable": False}
    return as_json({**body, "request_id": "req_1"}, status, **headers)


class ReplayServer:
    """Answers by method and path; a list of replies is used up one by one, its last stays."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self.fallback: Script | None = None
        self.open: set[socket.socket] = set()
        self._scripts: dict[tuple[str, str], Script | list[Reply]] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def on(self, method: str, path: str, *answer: Reply | Script) -> None:
        """Set what is answered: replies in order, or a function of the request."""
        first = answer[0]
        self._scripts[method, path] = list(answer) if isinstance(first, Reply) else first  # type: ignore[arg-type]

    def reply(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        script = self._scripts.get((asked.method, asked.path))
        if script is None and self.fallback:
            return self.fallback(asked)
        if script is None:
            return refusal(404, "route_not_found", f"{asked.method} {asked.path} is not scripted")
        if isinstance(script, list):
            return script.pop(0) if len(script) > 1 else script[0]
        return script(asked)

    def __enter__(self) -> ReplayServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._http.server_close()
        self._thread.join()


def _handler(server: ReplayServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def setup(self) -> None:
            server.connections += 1
            server.open.add(self.request)
            super().setup()

        def finish(self) -> None:
            server.open.discard(self.request)
            super().finish()

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:
                self.close_connection = True

        def _answer(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = b"".join(_body(self, headers))
            reply = server.reply(Asked(self.command, unquote(url.path), query, headers, body))
            self._send(reply)

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if isinstance(reply.body, bytes):
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in reply.body:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if reply.cut:
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """Tests are quiet."""

    return Handler


def _body(handler: BaseHTTPRequestHandler, headers: dict[str, str]) -> Iterator[bytes]:
    if headers.get("transfer-encoding") != "chunked":
        yield handler.rfile.read(int(headers.get("content-length", 0)))
        return
    while length := int(handler.rfile.readline(), 16):
        yield handler.rfile.read(length)
        handler.rfile.readline()
    handler.rfile.readline()
