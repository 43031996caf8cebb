//! Commands of both dialects against the real agent: output, order, ends, trees of processes, clients that leave.

use crate::sandbox::{eventually, Answer, Sandbox};
use serde_json::json;

#[test]
fn a_command_gives_its_output_and_end() {
    let sandbox = Sandbox::start();
    let ended =
        sandbox.exec(json!({"command": "cat; echo $GIVEN $MORE >&2; exit 3", "stdin": "in", "env": {"MORE": "1"}}));
    assert_eq!((&ended["stdout"], &ended["stderr"]), (&json!("in"), &json!("at the claim 1\n")));
    assert_eq!((&ended["exit_code"], &ended["signal"], &ended["timed_out"]), (&json!(3), &json!(null), &json!(false)));
    let killed = sandbox.exec(json!({"command": ["sh", "-c", "kill -9 $$"]}));
    assert_eq!((&killed["exit_code"], &killed["signal"]), (&json!(137), &json!(9)));
}

#[test]
fn wrong_requests_say_what_to_do() {
    let sandbox = Sandbox::start();
    let post = |body| sandbox.call("POST", "/v2/exec").json(&body).send();
    let cases = [
        (json!({"command": "true", "cwd": "/no/such"}), "invalid_working_directory"),
        (json!({"command": ["no-such-program"]}), "command_not_found"),
        (json!({"command": "true", "user": "no-such-user"}), "unknown_user"),
        (json!({"command": "true", "tiemout_s": 1}), "unknown_field"),
        (json!({"command": "true", "timeout_s": -1}), "invalid_request"),
        (json!({"command": ""}), "invalid_request"),
    ];
    for (body, code) in cases {
        let answer = post(body.clone());
        let error = answer.value();
        assert_eq!((answer.status, &error["code"]), (400, &json!(code)), "{body}");
        assert!(error["remedy"].is_string(), "{error}");
    }
}

#[test]
fn both_streams_arrive_whole_and_in_order() {
    let sandbox = Sandbox::start();
    let program = "i=0; while [ $i -lt 512 ]; do printf '%04d%04092d\\n' $i 0; printf '%04d%04092d\\n' $i 0 >&2; i=$((i+1)); done; printf 'tail\\342\\202'";
    let answer = sandbox.call("POST", "/command").json(&json!({"command": program})).send();
    let events = answer.bare_events();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("init", "execution_complete"));
    assert_eq!(kinds.iter().filter(|kind| **kind == "init").count(), 1);
    for stream in ["stdout", "stderr"] {
        let texts = events.iter().filter(|e| e["type"] == stream).map(|e| e["text"].as_str().unwrap());
        let lines: Vec<&str> = texts.collect();
        assert_eq!(lines.len(), if stream == "stdout" { 513 } else { 512 });
        for (i, line) in lines.iter().take(512).enumerate() {
            assert!(line.len() == 4096 && line.starts_with(&format!("{i:04}")), "line {i} of {stream}");
        }
    }
    assert!(events.iter().any(|event| event["text"] == "tail\u{fffd}"));
    assert!(events.iter().all(|event| event["timestamp"].is_u64()));
}

#[test]
fn a_timeout_takes_daemons_along_and_keeps_the_output() {
    let sandbox = Sandbox::start();
    let program = "echo before; setsid sh -c '(setsid sleep 7001 &) ; sleep 7001' & sleep 7001";
    let answer = sandbox.call("POST", "/command").json(&json!({"command": program, "timeout": 1500})).send();
    let events = answer.bare_events();
    assert_eq!(events[1]["text"], "before");
    assert_eq!(events[events.len() - 1]["error"]["evalue"], "137");
    assert_eq!(sandbox.count("sleep 7001"), 0);
}

#[test]
fn a_command_ends_though_its_background_child_holds_the_output() {
    let sandbox = Sandbox::start();
    let program =
        "(while ! [ -e /dev/shm/go ]; do sleep 0.05; done; echo late; echo alive > /dev/shm/done) & echo early";
    sandbox.output("rm -f /dev/shm/go /dev/shm/done");
    let ended = sandbox.exec(json!({"command": program}));
    assert_eq!(ended["stdout"], "early\n");
    sandbox.output("touch /dev/shm/go");
    eventually("the child writes on", || sandbox.exec(json!({"command": "cat /dev/shm/done"}))["stdout"] == "alive\n");
    let logs = format!("/command/{}/logs", ended["process_id"].as_str().unwrap());
    eventually("the late line is in the log", || sandbox.call("GET", &logs).send().text() == "early\nlate\n");
    sandbox.output("rm -f /dev/shm/go /dev/shm/done");
}

#[test]
fn a_client_that_leaves_ends_its_foreground_command_only() {
    let sandbox = Sandbox::start();
    let left = sandbox.call("POST", "/v2/exec").json(&json!({"command": "sleep 7002"})).begin();
    let detached = json!({"command": "sleep 7003", "detach": true});
    let kept = sandbox.call("POST", "/v2/exec").json(&detached).begin();
    eventually("both run", || sandbox.count("sleep 7002") + sandbox.count("sleep 7003") == 2);
    drop((left, kept));
    eventually("the attached one ends", || sandbox.count("sleep 7002") == 0);
    assert_eq!(sandbox.count("sleep 7003"), 1);
}

#[test]
fn a_client_that_does_not_read_costs_no_memory() {
    let sandbox = Sandbox::start();
    let body = json!({"command": "yes 0123456789abcdef | head -c 100000000"});
    let call = sandbox.call("POST", "/v2/exec").header("Accept", "text/event-stream");
    let slow = call.json(&body).begin();
    eventually("the command runs", || sandbox.count("yes") == 1);
    let peak = sandbox.output("grep VmHWM /proc/1/status | tr -dc 0-9");
    assert!(peak.trim().parse::<u64>().unwrap() < 16 << 10, "{peak} KiB");
    let events = Answer::read(slow).events();
    let output = |(name, data): &(String, serde_json::Value)| {
        if name == "stdout" {
            data["data"].as_str().unwrap().len()
        } else {
            0
        }
    };
    assert_eq!(events.iter().map(output).sum::<usize>(), 100_000_000);
    assert_eq!(events[events.len() - 1].1["exit_code"], 0);
}

#[test]
fn background_commands_have_status_logs_and_an_interrupt() {
    let sandbox = Sandbox::start();
    let body = json!({"command": "echo one; echo two >&2; sleep 7004", "background": true});
    let events = sandbox.call("POST", "/command").json(&body).send().bare_events();
    assert_eq!((&events[0]["type"], &events[1]["type"]), (&json!("init"), &json!("execution_complete")));
    let id = events[0]["text"].as_str().unwrap();
    let (status, logs) = (format!("/command/status/{id}"), format!("/command/{id}/logs"));
    assert_eq!(sandbox.call("GET", &status).send().value()["running"], true);
    eventually("both lines are logged", || sandbox.call("GET", &logs).send().body.len() == 8);
    let rest = sandbox.call("GET", &format!("{logs}?cursor=4")).send();
    assert_eq!((rest.text().as_str(), rest.header("EXECD-COMMANDS-TAIL-CURSOR")), ("two\n", Some("8")));
    assert_eq!(sandbox.call("DELETE", &format!("/command?id={id}")).send().status, 200);
    let ended = sandbox.call("GET", &status).send().value();
    assert_eq!((&ended["running"], &ended["exit_code"]), (&json!(false), &json!(143)));
    assert_eq!(sandbox.call("GET", "/command/status/none").send().status, 404);
}
