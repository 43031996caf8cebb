//! The process table of the native API against the real agent.

use crate::sandbox::{eventually, Sandbox};
use serde_json::{json, Value};

fn start(sandbox: &Sandbox, body: Value) -> String {
    let answer = sandbox.call("POST", "/v2/processes").json(&body).send();
    assert_eq!(answer.status, 201, "{}", answer.text());
    format!("/v2/processes/{}", answer.value()["id"].as_str().unwrap())
}

#[test]
fn input_is_fed_and_the_log_is_read_from_anywhere() {
    let sandbox = Sandbox::start();
    let path = start(&sandbox, json!({"command": "cat; echo end >&2", "stdin": true, "name": "copy"}));
    assert_eq!(sandbox.call("POST", &format!("{path}/stdin")).bytes(b"one\n").send().status, 204);
    assert_eq!(sandbox.call("POST", &format!("{path}/stdin?eof=true")).bytes(b"two\n").send().status, 204);
    let ended = sandbox.call("GET", &format!("{path}/wait?timeout_s=60")).send().value();
    assert_eq!((&ended["state"], &ended["exit_code"], &ended["name"]), (&json!("exited"), &json!(0), &json!("copy")));
    let logs = |query: &str| sandbox.call("GET", &format!("{path}/logs?{query}")).send();
    assert_eq!(logs("").text(), "one\ntwo\nend\n");
    assert_eq!(logs("stream=stderr").text(), "end\n");
    let part = logs("offset=4&limit=2");
    assert_eq!((part.text().as_str(), part.header("X-Talon-Next-Offset")), ("tw", Some("6")));
    let followed = sandbox.call("GET", &format!("{path}/logs?offset=8")).header("Accept", "text/event-stream").send();
    let events = followed.events();
    assert_eq!(events[0], ("stderr".to_owned(), json!({"data": "end\n", "next_offset": 12})));
    assert_eq!((events[1].0.as_str(), &events[1].1["exit_code"]), ("exit", &json!(0)));
    assert_eq!(sandbox.call("POST", &format!("{path}/stdin")).bytes(b"x").send().status, 409);
}

#[test]
fn signals_reach_the_group_and_delete_the_whole_tree() {
    let sandbox = Sandbox::start();
    let path = start(&sandbox, json!({"command": "trap 'echo got; exit 5' INT; echo up; sleep 3600 & wait"}));
    eventually("it is up", || sandbox.call("GET", &format!("{path}/logs")).send().text() == "up\n");
    let signal = |body: Value| sandbox.call("POST", &format!("{path}/signal")).json(&body).send().status;
    assert_eq!((signal(json!({"signal": "NONE"})), signal(json!({"signal": "INT"}))), (400, 204));
    assert_eq!(sandbox.call("GET", &format!("{path}/wait")).send().value()["exit_code"], 5);
    let path = start(&sandbox, json!({"command": "(setsid sh -c 'sleep 7005' &); sleep 7005"}));
    eventually("both run", || sandbox.count("sleep 7005") == 2);
    assert_eq!(sandbox.call("DELETE", &path).send().status, 204);
    assert_eq!(sandbox.count("sleep 7005"), 0);
    let ended = sandbox.call("GET", &path).send().value();
    assert_eq!((&ended["state"], &ended["signal"]), (&json!("killed"), &json!(9)));
}

#[test]
fn only_background_processes_are_listed() {
    let sandbox = Sandbox::start();
    sandbox.output("true");
    let path = start(&sandbox, json!({"command": ["sleep", "7006"]}));
    let items = sandbox.call("GET", "/v2/processes").send().value()["items"].clone();
    assert_eq!(items.as_array().unwrap().len(), 1);
    assert_eq!((&items[0]["command"], &items[0]["state"]), (&json!("sleep 7006"), &json!("running")));
    assert!(path.ends_with(items[0]["id"].as_str().unwrap()));
    assert_eq!(sandbox.call("GET", "/v2/processes/none").send().value()["code"], "process_not_found");
}
