"""What the doctor says of this host, on which the other tests run sandboxes, and of things that are missing."""

from pathlib import Path

from talon_server import doctor
from worker import world


def test_a_host_that_runs_sandboxes_has_no_failing_check(home: Path) -> None:
    findings = doctor.run(doctor.Subject(home, world.AGENT))
    assert [finding for finding in findings if finding.level == doctor.FAIL] == []
    assert all(finding.cost and finding.remedy for finding in findings if finding.level != doctor.OK)


def test_what_is_missing_is_told_with_its_cost_and_remedy(home: Path) -> None:
    findings = doctor.run(doctor.Subject(home, Path("/nowhere/agent"), "no-such-runtime"))
    failing = {finding.name: finding for finding in findings if finding.level == doctor.FAIL}
    assert {"agent", "runtime"} <= failing.keys()
    assert all(finding.cost and finding.remedy for finding in failing.values())
