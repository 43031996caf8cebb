"""Requests and replies of the OpenSandbox dialect, straight on ASGI.

Handlers take a `Request` and return a `Reply` or raise `Problem`; `app` does the rest. Kept apart from the
handlers so that they read as the protocol and nothing else.
"""

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError

from talon_server.control.principals import Principal
from talon_server.lib.race import Interrupted, unless

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Model = TypeVar("Model", bound=BaseModel)
T = TypeVar("T")

NOBODY = Principal("", "", "nobody")
_BODY_LIMIT = 4 * 1024 * 1024
_PAGE_LIMIT = 200


class Problem(Exception):
    """An answer that is an error: `{code, message}`, with `detail` beside them for bodies that failed validation."""

    def __init__(self, status: int, code: str, message: str, *, detail: Any = None, fields: Mapping[str, str] = {}):
        super().__init__(message)
        self.status, self.code, self.message, self.detail, self.fields = status, code, message, detail, fields

    def reply(self) -> "Reply":
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.detail is not None:
            body["detail"] = self.detail
        return Reply(self.status, body, dict(self.fields))


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` None sends none; a str goes as text/plain, anything else as JSON."""

    status: int = 200
    body: Any = None
    fields: Mapping[str, str] = field(default_factory=dict)

    async def send(self, send: Send, request_id: bytes) -> None:
        headers = [(b"x-request-id", request_id)]
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in self.fields.items()]
        data = b""
        if self.body is not None:
            text = isinstance(self.body, str)
            data = self.body.encode() if text else json.dumps(self.body, separators=(",", ":")).encode()
            headers.append((b"content-type", b"text/plain; charset=utf-8" if text else b"application/json"))
        if self.status != 204:
            headers.append((b"content-length", b"%d" % len(data)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": data})


class Request:
    """`args` are the variable parts of the path; `mount` is "" or "/v1"."""

    def __init__(self, scope: Scope, receive: Receive, headers: Mapping[bytes, bytes], mount: str) -> None:
        self._scope = scope
        self._receive = receive
        self.headers = headers
        self.mount = mount
        self.args: tuple[str, ...] = ()
        self.principal = NOBODY

    @property
    def method(self) -> str:
        return str(self._scope["method"])

    @property
    def scheme(self) -> str:
        return str(self._scope.get("scheme", "http"))

    @property
    def host(self) -> str:
        """The authority the client used, for addresses handed back to it."""
        given = self.headers.get(b"host")
        if given:
            return given.decode("latin-1")
        name, port = self._scope.get("server") or ("localhost", 80)
        return f"{name}:{port}"

    def query(self) -> dict[str, list[str]]:
        return parse_qs(self._scope["query_string"].decode("latin-1"), keep_blank_values=True)

    def one(self, name: str) -> str | None:
        values = self.query().get(name)
        return values[-1] if values else None

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives; it is cancelled when the client hangs up. For use once the body was read."""

        async def gone() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                pass

        try:
            return await unless(gone(), work)
        except Interrupted as error:
            raise Problem(400, "INVALID_REQUEST", "The client hung up before the answer.") from error

    async def body(self) -> bytes:
        """The whole body; 413 above 4 MiB."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Problem(400, "INVALID_REQUEST", "The request ended before its body did.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > _BODY_LIMIT:
                raise Problem(413, "INVALID_REQUEST", "The body is larger than 4 MiB.")
            if not message.get("more_body", False):
                return b"".join(parts)

    def text(self, name: str) -> str:
        """A header field, empty when absent."""
        return self.headers.get(name.encode(), b"").decode("latin-1")

    async def json(self) -> Any:
        """The body as JSON, None when it is empty."""
        return _parsed(await self.body())

    async def read(self, model: type[Model]) -> Model:
        """The body as `model`; 422 in FastAPI's shape, plus `code` and `message`, when it does not fit."""
        return self.parse(model, await self.body())

    def parse(self, model: type[Model], raw: bytes) -> Model:
        """As `read`, of a body that was read already; an empty one counts as `{}`."""
        data = _parsed(raw)
        try:
            return model.model_validate({} if data is None else data)
        except ValidationError as error:
            raise validation_problem(error, "body") from error

    def page(self) -> tuple[int, int]:
        """`page` and `pageSize`, checked."""
        page, size = self.number("page", 1, 1, 1_000_000_000), self.number("pageSize", 20, 1, _PAGE_LIMIT)
        return page, size

    def number(self, name: str, default: int, least: int, most: int) -> int:
        text = self.one(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or not least <= int(text[:12]) <= most:
            raise invalid(name, f"must be a whole number from {least} to {most}", where="query")
        return int(text)

    def flag(self, name: str) -> bool:
        text = (self.one(name) or "false").lower()
        if text in ("true", "1", "yes", "on"):
            return True
        if text in ("false", "0", "no", "off"):
            return False
        raise invalid(name, "must be true or false", where="query")


Handler = Callable[[Request], Awaitable[Reply]]


def _parsed(data: bytes) -> Any:
    if not data.strip():
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise invalid("body", f"is not JSON: {error}") from error


def invalid(name: str, says: str, *, where: str = "body") -> Problem:
    """A 422 about one field."""
    detail = [{"type": "value_error", "loc": [where, name], "msg": f"{name} {says}"}]
    return Problem(422, "INVALID_REQUEST", f"{name} {says}.", detail=detail)


def validation_problem(error: ValidationError, where: str) -> Problem:
    """pydantic's findings as FastAPI words them, and as one sentence for clients that read `message`."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    detail = [{"type": one["type"], "loc": [where, *one["loc"]], "msg": one["msg"]} for one in found]
    said = "; ".join(f"{'.'.join(map(str, one['loc'])) or where}: {one['msg']}" for one in found[:5])
    return Problem(422, "INVALID_REQUEST", said, detail=detail)


def paged(items: list[Any], page: int, size: int, total: int) -> dict[str, Any]:
    """One page in OpenSandbox's envelope."""
    pages = -(-total // size)
    return {
        "items": items,
        "pagination": {
            "page": page,
            "pageSize": size,
            "totalItems": total,
            "totalPages": pages,
            "hasNextPage": page < pages,
        },
    }


def without_nulls(shape: Mapping[str, Any]) -> dict[str, Any]:
    """OpenSandbox leaves absent fields out instead of sending null."""
    return {key: value for key, value in shape.items() if value is not None}
