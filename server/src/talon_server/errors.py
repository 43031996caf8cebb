"""The one error tree: what went wrong, why, and what to do next, without HTTP.

Every layer raises `TalonError` with a code of `api/errors.yaml`; the catalogue gives status, words and remedy where
the caller has none better. Library errors are chained, never leaked. Only `api` turns an error into a response.
"""

from talon_server.errors_gen import CATALOGUE


class TalonError(Exception):
    """`code` is a key of the catalogue; `message`, `remedy` and `retryable` default to the catalogue's.

    `cause` says what lies behind it (a program's last line, a system call's error), without secrets.
    """

    def __init__(
        self,
        code: str,
        message: str | None = None,
        *,
        cause: str | None = None,
        remedy: str | None = None,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        entry = CATALOGUE[code]
        self.code = code
        self.status = entry.status
        self.message = message or entry.message
        self.cause = cause
        self.remedy = remedy or entry.remedy
        self.retryable = entry.retryable if retryable is None else retryable
        self.retry_after_s = retry_after_s
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}: {self.cause}" if self.cause else self.message
