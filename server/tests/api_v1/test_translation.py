"""OpenSandbox's bodies, labels, filters, states and policies, read and written."""

import pytest
from pydantic import ValidationError

from talon_server.api.v1 import metadata, policy, states
from talon_server.api.v1.schemas import CreateSandbox, Hooks, Policy, Rule, Volume
from talon_server.model.network import Action, Mode
from talon_server.model.sandbox import State

IMAGE = {"image": {"uri": "python:3.12"}, "entrypoint": ["sleep", "9"], "resourceLimits": {"cpu": "1"}}


def test_the_sdks_default_body_is_read() -> None:
    body = CreateSandbox.model_validate({**IMAGE, "timeout": None, "env": {"A": "1", "B": None}, "unknown": 1})
    assert body.image is not None
    assert (body.image.uri, body.timeout, body.env) == ("python:3.12", None, {"A": "1", "B": None})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image": None}, "Exactly one of image or snapshotId"),
        ({"snapshotId": "snp_1"}, "Exactly one of image or snapshotId"),
        ({"timeout": 59}, "greater than or equal to 60"),
        ({"entrypoint": []}, "at least 1 item"),
        ({"entrypoint": None}, "entrypoint is required"),
        ({"resourceLimits": None}, "resourceLimits is required"),
        ({"platform": {"os": "plan9", "arch": "amd64"}}, "'linux' or 'windows'"),
    ],
)
def test_bodies_that_do_not_fit_say_why(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        CreateSandbox.model_validate({**IMAGE, **change})


def test_a_pool_needs_nothing_else_and_excludes_nothing() -> None:
    body = CreateSandbox.model_validate(
        {"extensions": {"poolRef": "p"}, "networkPolicy": {"egress": []}, "volumes": None, "env": None}
    )
    assert body.pool_ref == "p"


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "a", "mountPath": "/m"},
        {"name": "a", "mountPath": "/m", "host": {"path": "/x"}, "pvc": {"claimName": "c"}},
        {"name": "a", "mountPath": "m", "host": {"path": "/x"}},
        {"name": "a", "mountPath": "/m", "host": {"path": "x"}},
        {"name": "A_", "mountPath": "/m", "host": {"path": "/x"}},
        {"name": "a", "mountPath": "/m", "host": {"path": "/x"}, "subPath": "a/../b"},
        {"name": "a", "mountPath": "/m", "pvc": {"claimName": "Not Dns"}},
    ],
)
def test_volumes_that_do_not_fit(volume: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Volume.model_validate(volume)


def test_hooks_refuse_what_they_do_not_know() -> None:
    good = {"name": "tick", "schedule": "@every 30s", "command": ["true"]}
    assert Hooks.model_validate({"periodic": [good, {**good, "schedule": "*/5 * * * 1-5"}]}).periodic[0].name == "tick"
    for bad in ({"schedule": "soon"}, {"command": []}, {"timeoutSeconds": 301}, {"extra": 1}):
        with pytest.raises(ValidationError):
            Hooks.model_validate({"periodic": [{**good, **bad}]})


def test_labels_follow_kubernetes() -> None:
    metadata.check({"team": "a", "example.com/name": "B_1.x", "empty": "", "gone": None})
    for bad in ({"opensandbox.io/x": "1"}, {"": "1"}, {"a b": "1"}, {"a": "x" * 64}, {"a": "-x"}, {"A/b/c": "1"}):
        with pytest.raises(metadata.BadLabel):
            metadata.check(bad)


def test_metadata_merges_and_filters() -> None:
    assert metadata.merge({"a": "1", "b": "2"}, {"b": None, "c": "3", "d": None}) == {"a": "1", "c": "3"}
    assert metadata.parse_filter("a=1&b=x%20y") == {"a": "1", "b": "x y"}
    assert metadata.parse_filter("") == {}
    with pytest.raises(metadata.BadFilter):
        metadata.parse_filter("nonsense")


def test_states_have_opensandboxes_names() -> None:
    assert set(states.NAMES) == set(State)
    assert states.states_named(["RUNNING", "paused"]) == {State.RUNNING, State.PAUSED}
    assert states.states_named(["Terminated"]) == {State.STOPPED, State.TERMINATED}
    assert states.status_of(State.RUNNING, "", "t")["reason"] == "CONTAINER_RUNNING"


def test_a_policy_without_default_denies() -> None:
    sealed = policy.to_model(Policy.model_validate({}))
    assert (sealed.mode, sealed.default, sealed.rules) == (Mode.SEALED, Action.DENY, ())
    assert policy.status(sealed)["mode"] == "deny_all"
    listed = policy.to_model(Policy.model_validate({"egress": [{"action": "allow", "target": "*.pypi.example"}]}))
    assert (listed.mode, policy.status(listed)["mode"]) == (Mode.ALLOWLIST, "enforcing")
    assert policy.from_model(listed)["egress"] == [{"action": "allow", "target": "*.pypi.example"}]


def test_patched_rules_come_first_and_replace_their_target() -> None:
    base = policy.to_model(
        Policy.model_validate(
            {"egress": [{"action": "allow", "target": "a.test"}, {"action": "allow", "target": "b.test"}]}
        )
    )
    patched = policy.merged(
        base,
        [
            Rule(action="deny", target="B.test"),
            Rule(action="allow", target="c.test"),
            Rule(action="deny", target="c.test"),
        ],
    )
    shown = [(rule.action.value, rule.target) for rule in patched.rules]
    assert shown == [("deny", "B.test"), ("allow", "c.test"), ("allow", "a.test")]
    assert [rule.target for rule in policy.without(patched, ["C.TEST", "none"]).rules] == ["B.test", "a.test"]


@pytest.mark.parametrize("target", ["10.0.0.0/8", "2001:db8::1", "a.b-c.test", "*.x.test", "localhost"])
def test_targets(target: str) -> None:
    policy.to_model(Policy.model_validate({"egress": [{"action": "allow", "target": target}]}))


@pytest.mark.parametrize("target", ["a..b", "*.", "http://a.test", "a b", "*", "a/b"])
def test_targets_that_are_none(target: str) -> None:
    with pytest.raises(policy.BadTarget):
        policy.to_model(Policy.model_validate({"egress": [{"action": "allow", "target": target}]}))
