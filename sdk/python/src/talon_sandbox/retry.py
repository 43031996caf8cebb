"""When a request may be sent again, and after how long: a decision without I/O, used by the transport.

Invariant: a request whose effect may have happened is repeated only when it is idempotent. A 503 with Retry-After says
that nothing was done, so any request may follow it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import httpcore

from .errors import retry_after

IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long to try; `budget_s` bounds the sum of the waits of one call."""

    attempts: int = 3
    first_delay_s: float = 0.1
    budget_s: float = 30.0

    def after_failure(self, attempt: int, error: Exception, *, idempotent: bool) -> float | None:
        """Seconds to wait before the next attempt after a transport error, or None to give up."""
        never_sent = isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout | httpcore.PoolTimeout)
        if attempt + 1 >= self.attempts or not (idempotent or never_sent):
            return None
        if isinstance(error, httpcore.ReadTimeout):
            return None
        return self._backoff(attempt)

    def after_answer(
        self, attempt: int, waited_s: float, status: int, headers: Mapping[str, str], *, idempotent: bool
    ) -> float | None:
        """Seconds to wait before the next attempt after this answer, or None to keep it."""
        told = retry_after(headers)
        if status == 503 and told is not None:
            return told if waited_s + told <= self.budget_s else None
        if not idempotent or attempt + 1 >= self.attempts:
            return None
        if status == 429 and told is not None:
            return told if waited_s + told <= self.budget_s else None
        return self._backoff(attempt) if status in (502, 503) else None

    def _backoff(self, attempt: int) -> float:
        return self.first_delay_s * float(4**attempt) * (0.75 + os.urandom(1)[0] / 512)
