"""The platform's errors in OpenSandbox's words: status and code of each. Pure."""

from collections.abc import Mapping
from types import MappingProxyType

from talon_server.api.v1.http import Problem
from talon_server.errors import TalonError

_WORDS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "unauthorized": (401, "INVALID_API_KEY"),
        "sandbox_not_found": (404, "DOCKER::SANDBOX_NOT_FOUND"),
        "sandbox_not_running": (409, "DOCKER::SANDBOX_NOT_RUNNING"),
        "invalid_transition": (409, "KUBERNETES::INVALID_STATE"),
        "image_not_found": (400, "DOCKER::SANDBOX_IMAGE_PULL_FAILED"),
        "image_pull_failed": (500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED"),
        "registry_unauthorized": (400, "DOCKER::SANDBOX_IMAGE_PULL_FAILED"),
        "volume_not_found": (404, "VOLUME::PVC_NOT_FOUND"),
        "host_path_not_allowed": (400, "VOLUME::HOST_PATH_NOT_ALLOWED"),
        "snapshot_not_found": (404, "SNAPSHOT::NOT_FOUND"),
        "snapshot_in_use": (409, "SNAPSHOT::DELETE_CONFLICT"),
        "snapshot_failed": (500, "SNAPSHOT::RUNTIME_CREATE_FAILED"),
        "pool_not_found": (404, "KUBERNETES::POOL_NOT_FOUND"),
        "pool_exists": (409, "KUBERNETES::POOL_ALREADY_EXISTS"),
        "capacity_exhausted": (429, "KUBERNETES::POOL_CAPACITY_EXHAUSTED"),
        "queue_timeout": (429, "KUBERNETES::POOL_CAPACITY_EXHAUSTED"),
        "wait_timeout": (504, "KUBERNETES::POD_READY_TIMEOUT"),
        "create_failed": (500, "DOCKER::SANDBOX_START_FAILED"),
        "runtime_failed": (500, "DOCKER::SANDBOX_START_FAILED"),
        "agent_unreachable": (502, "BACKEND_CONNECTION_FAILED"),
        "upstream_unavailable": (502, "BACKEND_CONNECTION_FAILED"),
        "internal": (500, "GENERAL::UNKNOWN_ERROR"),
    }
)


def words_of(error: TalonError) -> tuple[int, str]:
    """Status and code; an unlisted error keeps its own status under a general code."""
    general = "SANDBOX::INVALID_PARAMETER" if error.status < 500 else "SANDBOX::INTERNAL_ERROR"
    return _WORDS.get(error.code, (error.status, general))


def problem_of(error: TalonError) -> Problem:
    status, code = words_of(error)
    fields = {"Retry-After": str(max(1, round(error.retry_after_s or 1)))} if status == 429 else {}
    return Problem(status, code, f"{str(error).rstrip('.')}. {error.remedy}", fields=fields)
