"""Which calls are noted in the audit log, and under which name."""

import pytest

from talon_server.api.audited import action_of


@pytest.mark.parametrize(
    ("method", "path", "noted"),
    [
        ("POST", "/v2/sandboxes", ("sandbox.create", "")),
        ("POST", "/v1/sandboxes", ("sandbox.create", "")),
        ("DELETE", "/v2/sandboxes/x", ("sandbox.delete", "x")),
        ("POST", "/v2/sandboxes/x/exec", ("sandbox.exec", "x")),
        ("PUT", "/v2/sandboxes/x/fs", ("sandbox.fs.replace", "x")),
        ("GET", "/v2/sandboxes/x/fs", ("sandbox.fs.read", "x")),
        ("POST", "/v2/sandboxes:batch", ("sandbox.batch", "")),
        ("POST", "/v2/images:pull", ("image.pull", "")),
        ("GET", "/v2/recordings/r/timeline", ("recording.timeline.read", "r")),
        ("PUT", "/v2/sandboxes/x/network", ("sandbox.network.replace", "x")),
        ("POST", "/v2/keys", ("key.create", "")),
        ("GET", "/v2/audit", ("audit.read", "")),
        ("GET", "/v2/sandboxes", None),
        ("GET", "/v2/sandboxes/x", None),
        ("GET", "/healthz", None),
        ("GET", "/", None),
    ],
)
def test_actions_are_named_by_method_and_path(method: str, path: str, noted: tuple[str, str] | None) -> None:
    assert action_of(method, path) == noted
