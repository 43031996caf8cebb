"""The catalogue of error codes. Made by tools/gen_errors.py of api/errors.yaml: change that, not this."""

from typing import NamedTuple


class Entry(NamedTuple):
    status: int
    message: str
    remedy: str
    retryable: bool


CATALOGUE = {
    "unauthorized": Entry(
        401,
        "No valid API key was given.",
        "Send Authorization: Bearer <key>; the first key is in admin.key in the server's home.",
        False,
    ),
    "forbidden": Entry(
        403,
        "This key may not do that.",
        "Use a key that may.",
        False,
    ),
    "invalid_request": Entry(
        400,
        "The request cannot be understood.",
        "Compare it with the API's specification at /docs.",
        False,
    ),
    "invalid_size": Entry(
        400,
        "That is not a size.",
        "Write a number with a unit, such as 512MiB or 4GiB.",
        False,
    ),
    "invalid_duration": Entry(
        400,
        "That is not a duration.",
        "Write a positive number with a unit, such as 30s, 10m or 2h.",
        False,
    ),
    "unknown_field": Entry(
        400,
        "The request has a field that does not exist.",
        "Correct the field's name.",
        False,
    ),
    "request_too_large": Entry(
        413,
        "The request's body is too large.",
        "Upload large data as a file of the sandbox.",
        False,
    ),
    "not_found": Entry(
        404,
        "There is no such thing here.",
        "Check the address against the specification at /docs.",
        False,
    ),
    "method_not_allowed": Entry(
        405,
        "This address does not take that method.",
        "Check the method against the specification at /docs.",
        False,
    ),
    "sandbox_not_found": Entry(
        404,
        "There is no such sandbox.",
        "List the sandboxes to see which there are.",
        False,
    ),
    "sandbox_not_running": Entry(
        409,
        "The sandbox is not running.",
        "Start or resume it first.",
        False,
    ),
    "invalid_transition": Entry(
        409,
        "The sandbox cannot go into that state from the one it is in.",
        "Look at its state first.",
        False,
    ),
    "name_taken": Entry(
        409,
        "Another sandbox has this name.",
        "Choose another name, or remove the other sandbox.",
        False,
    ),
    "idempotency_conflict": Entry(
        409,
        "This idempotency key was used for another request.",
        "Use a fresh key for a new request.",
        False,
    ),
    "image_not_found": Entry(
        404,
        "There is no such image here.",
        "Pull it with `tsb image pull`, or list the images with `tsb image ls`.",
        False,
    ),
    "image_in_use": Entry(
        409,
        "Sandboxes still use this image.",
        "Remove them first.",
        False,
    ),
    "image_pull_failed": Entry(
        502,
        "The image could not be pulled.",
        "Check the reference and that the registry answers.",
        True,
    ),
    "image_import_failed": Entry(
        400,
        "The archive is no image.",
        "Give an OCI or docker archive, or a root file system as a tar file.",
        False,
    ),
    "image_build_failed": Entry(
        422,
        "The image could not be built.",
        "Read the build's log.",
        False,
    ),
    "registry_unauthorized": Entry(
        401,
        "The registry refused the login.",
        "Check user name and password.",
        False,
    ),
    "volume_not_found": Entry(
        404,
        "There is no such volume.",
        "Create it with `tsb volume create`.",
        False,
    ),
    "volume_in_use": Entry(
        409,
        "Sandboxes still use this volume.",
        "Remove them first.",
        False,
    ),
    "volume_exists": Entry(
        409,
        "There is a volume with this name.",
        "Choose another name.",
        False,
    ),
    "host_path_not_allowed": Entry(
        403,
        "This path of the host is not on the operator's list.",
        "Use a named volume or ask the operator to allow the path.",
        False,
    ),
    "snapshot_not_found": Entry(
        404,
        "There is no such snapshot.",
        "List the snapshots to see which there are.",
        False,
    ),
    "snapshot_in_use": Entry(
        409,
        "Sandboxes still use this snapshot.",
        "Remove them first.",
        False,
    ),
    "snapshot_failed": Entry(
        500,
        "The snapshot could not be made.",
        "Try again; the server's log has the cause.",
        True,
    ),
    "pool_not_found": Entry(
        404,
        "There is no such pool.",
        "List the pools to see which there are.",
        False,
    ),
    "pool_exists": Entry(
        409,
        "There is a pool with this name.",
        "Choose another name.",
        False,
    ),
    "key_not_found": Entry(
        404,
        "There is no such key.",
        "List the keys to see which there are.",
        False,
    ),
    "recording_not_found": Entry(
        404,
        "There is no such recording.",
        "List the recordings to see which there are.",
        False,
    ),
    "recording_held": Entry(
        409,
        "The recording is under a legal hold.",
        "Lift the hold first.",
        False,
    ),
    "recording_unavailable": Entry(
        503,
        "The recording cannot be written, and this sandbox does nothing unrecorded.",
        "Free space for recordings on the host.",
        True,
    ),
    "capacity_exhausted": Entry(
        503,
        "The host is full.",
        "Try again later or remove sandboxes.",
        True,
    ),
    "queue_timeout": Entry(
        503,
        "No place became free in time.",
        "Try again, or allow a longer queue_timeout.",
        True,
    ),
    "wait_timeout": Entry(
        504,
        "The sandbox did not reach the state in time.",
        "Look at it again later.",
        True,
    ),
    "create_failed": Entry(
        500,
        "The sandbox could not be started.",
        "Try again; `talon-server doctor` tells what the host lacks.",
        True,
    ),
    "runtime_failed": Entry(
        500,
        "The container runtime failed.",
        "Run `talon-server doctor` on the host.",
        True,
    ),
    "agent_unreachable": Entry(
        502,
        "The sandbox's agent does not answer.",
        "Look at the sandbox's state.",
        True,
    ),
    "upstream_unavailable": Entry(
        502,
        "Nothing answers at that port of the sandbox.",
        "Start a server on the port first.",
        True,
    ),
    "network_invalid": Entry(
        400,
        "The network policy is not valid.",
        "Targets are names, *.suffixes, addresses or networks.",
        False,
    ),
    "host_unsuitable": Entry(
        500,
        "This host lacks what sandboxes need.",
        "Run `talon-server doctor`.",
        False,
    ),
    "internal": Entry(
        500,
        "The server made a mistake.",
        "Tell the operator the request id.",
        True,
    ),
    "agent_error": Entry(
        500,
        "Something failed inside the sandbox.",
        "Read the cause; try again.",
        False,
    ),
    "unknown_user": Entry(
        400,
        "There is no such user in the sandbox.",
        "Use a numeric id or a name of the image's /etc/passwd.",
        False,
    ),
    "file_not_found": Entry(
        404,
        "There is no such file or directory.",
        "List the parent directory to see what is there.",
        False,
    ),
    "invalid_path": Entry(
        400,
        "The path cannot be used that way.",
        "Check each part of the path.",
        False,
    ),
    "not_a_regular_file": Entry(
        400,
        "It is a device, a FIFO or a socket.",
        "Read or write special files with a command.",
        False,
    ),
    "permission_denied": Entry(
        403,
        "The user may not do that with this file.",
        "Choose another user or change the permissions.",
        False,
    ),
    "read_only": Entry(
        403,
        "The file system is read-only.",
        "Write elsewhere, or mount the volume writable.",
        False,
    ),
    "file_exists": Entry(
        409,
        "There is something at that path.",
        "Remove it first, choose another path, or overwrite.",
        False,
    ),
    "directory_not_empty": Entry(
        409,
        "The directory is not empty.",
        "Delete it recursively.",
        False,
    ),
    "file_busy": Entry(
        409,
        "The file is in use by the kernel.",
        "End the program, or work on what is inside the mount.",
        False,
    ),
    "disk_full": Entry(
        507,
        "No space is left in the sandbox.",
        "Delete files, or give the sandbox a larger disk.",
        False,
    ),
    "invalid_archive": Entry(
        400,
        "The archive cannot be unpacked.",
        "Send an uncompressed tar with relative names below the directory.",
        False,
    ),
    "session_busy": Entry(
        409,
        "The session runs something else.",
        "Wait for it, or use another session.",
        True,
    ),
    "isolation_unavailable": Entry(
        503,
        "The isolated session is not available.",
        "Look at /v1/isolated/capabilities.",
        False,
    ),
    "sandbox_exhausted": Entry(
        503,
        "The sandbox has no room for it.",
        "End processes, or give the sandbox more pids or memory.",
        True,
    ),
}
