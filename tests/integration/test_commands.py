"""Commands: output, exit codes, streams, time limits, background, standard input."""

import pytest

from talon_sandbox import CommandError, Sandbox
from tests.framework.waiting import until


def test_output_and_exit_code(shared: Sandbox) -> None:
    result = shared.run("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert result.duration_s >= 0


def test_words_are_not_read_by_a_shell(shared: Sandbox) -> None:
    assert shared.run(["echo", "$HOME", "a  b"]).stdout == "$HOME a  b\n"


def test_check_raises_with_the_result(shared: Sandbox) -> None:
    with pytest.raises(CommandError) as caught:
        shared.run("echo gone wrong >&2; exit 9", check=True)
    assert caught.value.result.exit_code == 9
    assert "gone wrong" in str(caught.value)


def test_directory_environment_and_input(shared: Sandbox) -> None:
    result = shared.run('cat; echo "$WHO $PWD"', cwd="/tmp", env={"WHO": "me"}, stdin="given\n")
    assert result.stdout == "given\nme /tmp\n"


def test_users(shared: Sandbox) -> None:
    assert shared.run("id -un").stdout == "sandbox\n"
    assert shared.run("id -u", user="root").stdout == "0\n"
    assert shared.run("pwd; touch here && rm here").stdout == "/workspace\n"


def test_time_limit_keeps_what_was_printed_and_ends_the_tree(shared: Sandbox) -> None:
    result = shared.run("echo before; (setsid sleep 1001 &) ; sleep 1002", timeout=1)
    assert result.timed_out
    assert result.stdout == "before\n"
    until(lambda: not shared.run("pgrep -f 'sleep 100[12]'").stdout, "no process of the timed-out command lives")


def test_a_command_ends_when_its_own_process_ends(shared: Sandbox) -> None:
    result = shared.run("sleep 1003 & echo done", timeout=60)
    assert (result.stdout, result.timed_out) == ("done\n", False)
    shared.run("pkill -f 'sleep 1003'")


def test_output_is_streamed_as_it_comes(shared: Sandbox) -> None:
    seen: list[str] = []
    shared.fs.write_text("/tmp/gate", "")

    def on_stdout(text: str) -> None:
        seen.append(text)
        if "first" in text:
            shared.fs.remove("/tmp/gate")

    result = shared.run("echo first; while [ -e /tmp/gate ]; do sleep 0.05; done; echo second", on_stdout=on_stdout)
    assert "".join(seen) == "first\nsecond\n"
    assert result.exit_code == 0


def test_text_that_is_cut_in_the_middle_of_a_character(shared: Sandbox) -> None:
    result = shared.run(r"printf '\303'; sleep 0.2; printf '\251\n'; printf '\342\202'")
    assert result.stdout.startswith("é\n")
    assert len(result.stdout) > 2, "the unfinished tail is delivered too"


def test_bytes(shared: Sandbox) -> None:
    assert shared.run(r"printf '\000\377\n'", binary=True).stdout_bytes == b"\x00\xff\n"


def test_a_signal_is_told(shared: Sandbox) -> None:
    result = shared.run("kill -9 $$")
    assert result.exit_code == 137
    assert not result.oom_killed


def test_background_command_with_input(shared: Sandbox) -> None:
    process = shared.spawn("while read line; do echo got $line; done; echo end; exit 4")
    process.write("one\n")
    process.write(b"two\n")
    process.close_stdin()
    assert "".join(str(chunk) for chunk in process.logs(follow=True)) == "got one\ngot two\nend\n"
    done = process.wait(timeout="60s")
    assert (done.state, done.exit_code) == ("exited", 4)
    assert process.id in [item.id for item in shared.processes()]


def test_killing_a_background_command_ends_all_it_started(shared: Sandbox) -> None:
    process = shared.spawn("setsid sleep 1004 & sleep 1005 & echo up; wait")
    assert "up" in str(next(iter(process.logs(follow=True))))
    process.kill()
    assert process.wait(timeout="60s").state == "killed"
    until(lambda: not shared.run("pgrep -f 'sleep 100[45]'").stdout, "no process of it lives")


def test_every_process_is_reaped(shared: Sandbox) -> None:
    shared.run("for i in $(seq 50); do (setsid sh -c 'exit 0' &) ; done")
    until(lambda: not shared.run("ps -eo stat= | grep ^Z").stdout, "there are no zombies")


def test_metrics_are_the_sandboxs_own(make: object) -> None:
    sandbox: Sandbox = make(resources={"cpu": 1, "memory": "256MiB"})  # type: ignore[operator]
    metrics = sandbox.metrics()
    assert metrics.memory_limit_bytes == 256 << 20
    assert 0 < metrics.memory_bytes < 256 << 20
    assert metrics.pids >= 1
