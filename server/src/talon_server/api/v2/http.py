"""Requests and answers of /v2: the principal, bodies read strictly, errors in their one shape.

A handler is `async (Call) -> Response`; `endpoint` makes a Starlette endpoint of it. Raises nothing to the outside:
every error becomes `{code, message, cause, remedy, retryable, request_id}` with the catalogue's status.
"""

import asyncio
import difflib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from talon_server.api.services import Services
from talon_server.control.principals import Principal
from talon_server.errors import TalonError
from talon_server.lib.companion import Companion
from talon_server.lib.race import Interrupted, unless

log = logging.getLogger(__name__)
Model = TypeVar("Model", bound=BaseModel)
T = TypeVar("T")
KEEP_ALIVE_S = 15.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request by a known caller."""

    request: Request
    services: Services
    principal: Principal

    def path(self, name: str) -> str:
        """A part of the address."""
        return str(self.request.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int, *, most: int) -> int:
        """A whole number of the query. Raises invalid_request."""
        text = self.query(name)
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or int(text) > most:
            raise TalonError("invalid_request", f"{name} must be a whole number up to {most}")
        return int(text)

    def seconds(self, name: str) -> float | None:
        """A number of seconds of the query, None when absent."""
        text = self.query(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError as error:
            raise TalonError("invalid_request", f"{name} must be a number of seconds") from error
        if not 0 <= value <= 86400:
            raise TalonError("invalid_request", f"{name} must be between 0 and 86400 seconds")
        return value

    async def body(self) -> bytes:
        """The whole body. Raises request_too_large."""
        limit, parts, size = self.services.config.limits.body_bytes, [], 0
        try:
            async for part in self.request.stream():
                size += len(part)
                if size > limit:
                    raise TalonError("request_too_large", f"the body is larger than {limit} bytes")
                parts.append(part)
        except ClientDisconnect as error:
            raise TalonError("invalid_request", "the request ended before its body did") from error
        return b"".join(parts)

    async def read(self, model: type[Model], data: bytes | None = None) -> Model:
        """The body as `model`. Raises unknown_field, invalid_request, naming the field and what is near it."""
        data = await self.body() if data is None else data
        try:
            return model.model_validate(json.loads(data) if data.strip() else {})
        except ValidationError as error:
            raise _misread(error, model) from error
        except (ValueError, RecursionError) as error:
            raise TalonError("invalid_request", "the body is not JSON", cause=str(error)[:200]) from error

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives; it is cancelled when the client hangs up. For use once the body was read."""

        async def gone() -> None:
            while (await self.request.receive())["type"] != "http.disconnect":
                pass

        try:
            return await unless(gone(), work)
        except Interrupted as error:
            raise TalonError("invalid_request", "the client hung up before the answer") from error


Handler = Callable[[Call], Awaitable[Response]]


def endpoint(services: Services, handler: Handler, *, admin: bool = False) -> Callable[[Request], Awaitable[Response]]:
    """A Starlette endpoint that knows its caller and answers errors."""

    async def answer(request: Request) -> Response:
        try:
            principal = _principal(services, request)
            if admin and not principal.admin:
                raise TalonError("forbidden")
            return await handler(Call(request, services, principal))
        except TalonError as error:
            return failure(error, request)
        except Exception:
            log.exception("unexpected error on %s %s", request.method, request.url.path)
            return failure(TalonError("internal"), request)

    return answer


def reply(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return Response(data, status, dict(headers or {}), media_type="application/json")


def failure(error: TalonError, request: Request) -> Response:
    """An error's answer."""
    headers = {"Retry-After": str(max(1, round(error.retry_after_s or 1)))} if error.status in (429, 503) else {}
    return reply(told(error, request.scope.get("request_id")), error.status, headers)


def told(error: TalonError, request_id: str | None) -> dict[str, Any]:
    """An error as clients see it."""
    return {
        "code": error.code,
        "message": error.message,
        "cause": error.cause,
        "remedy": error.remedy,
        "retryable": error.retryable,
        "request_id": request_id,
    }


def lines(items: AsyncIterator[Mapping[str, Any]], request: Request) -> Response:
    """A stream of JSON lines; an error becomes the last line."""

    async def write() -> AsyncIterator[bytes]:
        try:
            async for item in items:
                yield json.dumps(item, separators=(",", ":")).encode() + b"\n"
        except TalonError as error:
            yield json.dumps({"error": told(error, request.scope.get("request_id"))}).encode() + b"\n"
        except Exception:
            log.exception("unexpected error in a stream")
            yield json.dumps({"error": told(TalonError("internal"), request.scope.get("request_id"))}).encode() + b"\n"

    return StreamingResponse(write(), media_type="application/x-ndjson", headers=_UNBUFFERED)


def server_sent(items: AsyncIterator[tuple[str, int, Mapping[str, Any]]]) -> Response:
    """Server-sent events of (event, id, data), with a sign of life when there are none for a while."""

    async def read(into: asyncio.Queue[bytes | None]) -> None:
        try:
            async for kind, sequence, data in items:
                text = json.dumps(data, separators=(",", ":"))
                await into.put(f"event: {kind}\nid: {sequence}\ndata: {text}\n\n".encode())
        except Exception:
            log.exception("unexpected error in a stream of events")
        await into.put(None)

    async def write() -> AsyncIterator[bytes]:
        yield b": open\n\n"
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(100)
        async with Companion(read(queue)):
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        event = await queue.get()
                except TimeoutError:
                    event = b": alive\n\n"
                if event is None:
                    return
                yield event

    return StreamingResponse(write(), media_type="text/event-stream", headers=_UNBUFFERED)


_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def _principal(services: Services, request: Request) -> Principal:
    given = request.headers.get("open-sandbox-api-key")
    bearer = request.headers.get("authorization", "")
    raw = given or (bearer[7:].strip() if bearer[:7].lower() == "bearer " else "")
    principal = services.keys.authenticate(raw) if raw else None
    if principal is None:
        raise TalonError("unauthorized", None if not raw else "This API key is not valid.")
    return principal


def _misread(error: ValidationError, model: type[BaseModel]) -> TalonError:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("function-", "constrained-")))
    if first["type"] != "extra_forbidden":
        return TalonError("invalid_request", f"{where or 'the body'}: {first['msg']}")
    near = difflib.get_close_matches(str(first["loc"][-1]), _names(model), n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(sorted(_names(model)))}."
    return TalonError("unknown_field", f"there is no field {where!r}", remedy=hint)


def _names(model: type[BaseModel]) -> Iterable[str]:
    names = set(model.model_fields)
    for field in model.model_fields.values():
        for inner in getattr(field.annotation, "__args__", (field.annotation,)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                names |= set(inner.model_fields)
    return names
