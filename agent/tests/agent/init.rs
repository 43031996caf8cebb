//! PID 1 against its own sandbox: claim, token, privileges, signals, ends.

use crate::sandbox::{eventually, Sandbox, TOKEN};
use serde_json::json;

#[test]
fn it_answers_after_the_claim_and_only_with_the_token() {
    let sandbox = Sandbox::unclaimed();
    assert_eq!(sandbox.tell(json!({"op": "ping"})), json!({"ok": true, "claimed": false}));
    assert_eq!(sandbox.claim(json!({"token": ""}))["ok"], false);
    assert_eq!(sandbox.claim(json!({}))["ok"], true);
    assert_eq!(sandbox.claim(json!({}))["code"], "already_claimed");
    assert_eq!(sandbox.call("GET", "/ping").send().status, 200);
    for token in ["", "Bearer ", "Bearer other", "token-of-this-sandboX"] {
        let refused = sandbox.anonymous("GET", "/v2/metrics").header("Authorization", token).send();
        assert_eq!((refused.status, &refused.value()["code"]), (401, &json!("unauthorized")));
    }
    assert_eq!(sandbox.anonymous("GET", "/ping").header("X-EXECD-ACCESS-TOKEN", TOKEN).send().status, 200);
    let metrics = sandbox.call("GET", "/metrics").send().value();
    assert!(metrics["cpu_count"].as_f64().unwrap() > 0.0 && metrics["timestamp"].is_u64());
}

#[test]
fn root_inside_cannot_reach_into_it() {
    let sandbox = Sandbox::start();
    for command in [
        "cat /proc/1/environ",
        "cat /proc/1/maps",
        "head -c1 /proc/1/mem",
        "readlink /proc/1/exe",
        "readlink /proc/1/fd/3",
        "mount -t tmpfs none /mnt",
        "unshare --user true",
        "unshare --mount true",
        "mknod /dev/shm/disk b 8 0",
        "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
        "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
    ] {
        assert_ne!(sandbox.exec(json!({"command": command}))["exit_code"], 0, "{command}");
    }
    let status = sandbox.output("cat /proc/self/status");
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!((line("CapBnd:").as_str(), line("NoNewPrivs:").as_str()), ("00000000a00405fb", "1"));
    assert_eq!((line("Seccomp:").as_str(), line("CapInh:").as_str()), ("2", "0000000000000000"));
}

#[test]
fn signals_from_inside_do_nothing() {
    let sandbox = Sandbox::start();
    sandbox.output("for s in KILL STOP SEGV ABRT ILL BUS TRAP USR1 HUP TERM INT; do kill -$s 1; done");
    assert_eq!(sandbox.output("echo still there"), "still there\n");
}

#[test]
fn commands_can_trap_what_was_ignored_around_the_agent() {
    let sandbox = Sandbox::start();
    assert_eq!(sandbox.output("trap 'echo trapped' INT QUIT; kill -INT $$; kill -QUIT $$"), "trapped\ntrapped\n");
    assert_eq!(sandbox.output("grep SigIgn /proc/self/status"), "SigIgn:\t0000000000000000\n");
}

#[test]
fn it_ends_with_the_entrypoint_and_its_code() {
    let mut sandbox = Sandbox::claimed(json!({"entrypoint": ["sh", "-c", "(setsid sleep 7008 &); exit 7"]}));
    assert_eq!(sandbox.ended(), 7);
}

#[test]
fn stop_is_polite_first_and_then_ends_all() {
    let entrypoint = "trap 'exit 9' TERM; echo set; while :; do sleep 0.1; done";
    let mut sandbox = Sandbox::claimed(json!({"entrypoint": ["sh", "-c", entrypoint]}));
    sandbox.output("(setsid sh -c 'trap : TERM; while :; do sleep 1; done' &) ; true");
    let log = || sandbox.call("GET", "/v2/processes/entrypoint/logs").send().text();
    eventually("the entrypoint has set its trap", || log() == "set\n");
    assert_eq!(sandbox.tell(json!({"op": "stop", "grace_ms": 2000}))["ok"], true);
    assert_eq!(sandbox.ended(), 9);
}
