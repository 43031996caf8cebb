"""The errors of the SDK: one tree, made from the server's error bodies by `from_answer`.

Every error says what failed (`message`), why (`cause`), what to try next (`remedy`), and carries the stable `code` of
the API and the `request_id` to quote to an operator. Errors of the HTTP library are chained, never raised as they are.
"""

from __future__ import annotations

import builtins
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .models import Result


class TalonError(Exception):
    """Base of all errors raised by the SDK."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        cause: str = "",
        remedy: str = "",
        status: int = 0,
        request_id: str = "",
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.cause = cause
        self.remedy = remedy
        self.status = status
        self.request_id = request_id
        self.retryable = retryable

    def __str__(self) -> str:
        parts = [f"{self.message} [{self.code}]" if self.code else self.message]
        parts += [part for part in (self.cause, self.remedy) if part]
        if self.request_id:
            parts.append(f"(request {self.request_id})")
        return " — ".join(parts)


class InvalidRequestError(TalonError):
    """The request itself is wrong: a bad size, an unknown field, a path outside the root (400, 413, 422)."""


class AuthError(TalonError):
    """The key is missing, wrong, or may not do this (401, 403)."""


class PermissionDeniedError(TalonError):
    """The key is good, but this is not allowed: a file of another user, a path of the host (403)."""


class NotFoundError(TalonError):
    """No such sandbox, process, file, image or volume (404)."""


class ConflictError(TalonError):
    """The thing exists already, or its state does not allow this (409, 412)."""


class QuotaError(TalonError):
    """A limit of the account or of the sandbox is used up (402, 507, codes with quota)."""


class RateLimitError(TalonError):
    """Too many requests (429). `retry_after_s` says when to try again."""

    retry_after_s: float | None = None


class ServerError(TalonError):
    """The server failed, or has no room now (5xx). `retry_after_s` is set when it said when to try again."""

    retry_after_s: float | None = None


class NetworkError(TalonError):
    """The server was not reached, or the connection broke."""


class TalonTimeoutError(TalonError, builtins.TimeoutError):
    """Something was not done in the time given (a wait, a connection, an answer)."""


class ConfigError(TalonError):
    """The client's own configuration is wrong or missing."""


class TransferError(TalonError):
    """A local file could not be read or written, or an archive is not acceptable."""


class CommandError(TalonError):
    """A command run with `check=True` did not end with exit code 0; `result` holds its output."""

    def __init__(self, command: str | list[str], result: Result) -> None:
        why = "timed out" if result.timed_out else f"ended with exit code {result.exit_code}"
        if result.oom_killed:
            why += " (out of memory)"
        super().__init__(
            f"the command {command!r} {why}",
            code="command_failed",
            cause=result.stderr.strip()[-2000:],
            remedy="read result.stdout and result.stderr of this error",
        )
        self.command = command
        self.result = result


_BY_STATUS: dict[int, type[TalonError]] = {
    401: AuthError,
    402: QuotaError,
    403: AuthError,
    404: NotFoundError,
    408: TalonTimeoutError,
    409: ConflictError,
    412: ConflictError,
    429: RateLimitError,
    504: TalonTimeoutError,
    507: QuotaError,
}


_BY_CODE: tuple[tuple[str, type[TalonError]], ...] = (
    ("not_found", NotFoundError),
    ("unauthorized", AuthError),
    ("timeout", TalonTimeoutError),
    ("invalid", InvalidRequestError),
)


def _kind(status: int, code: str) -> type[TalonError]:
    """The class for a status, or (in a stream, where there is none: 0) for a code."""
    if "quota" in code:
        return QuotaError
    if status == 403:
        return AuthError if code in ("", "forbidden") else PermissionDeniedError
    if status == 0:
        return next((kind for part, kind in _BY_CODE if part in code), ServerError)
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return ServerError if status >= 500 else InvalidRequestError


def from_fields(fields: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> TalonError:
    """The error for an error object of the API (`{code, message, cause, remedy, retryable, request_id}`)."""
    code = str(fields.get("code") or "")
    error = _kind(status, code)(
        str(fields.get("message") or f"the server answered {status}"),
        code=code,
        cause=str(fields.get("cause") or ""),
        remedy=str(fields.get("remedy") or ""),
        status=status,
        request_id=str(fields.get("request_id") or headers.get("x-request-id", "")),
        retryable=bool(fields.get("retryable", False)),
    )
    if isinstance(error, RateLimitError | ServerError):
        error.retry_after_s = retry_after(headers)
    return error


def from_answer(status: int, headers: Mapping[str, str], body: bytes) -> TalonError:
    """The error for an HTTP answer of 400 or above; a body that is not the API's own is quoted in the cause."""
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if isinstance(fields, dict) and ("code" in fields or "message" in fields):
        return from_fields(fields, status, headers)
    text = body[:300].decode("utf-8", "replace").strip()
    return from_fields({"cause": f"the answer was not from Talon: {text}" if text else ""}, status, headers)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header (RFC 9110 §10.2.3, delta form only), or None."""
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return None
