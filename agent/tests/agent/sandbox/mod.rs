//! A sandbox for tests: the real agent as PID 1 of fresh namespaces, claimed without a root of its own ("plain").
//!
//! Needs root and `unshare`, as all that runs real sandboxes does. Dropping it ends all its processes.

mod http;
mod sys_seqpacket;

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{json, Value};

pub use http::{Answer, Call};
use sys_seqpacket::Seqpacket;

pub const TOKEN: &str = "token-of-this-sandbox";
/// Longest wait for anything: generous, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Sandbox {
    directory: PathBuf,
    child: Child,
    control: Seqpacket,
}

impl Sandbox {
    /// Claimed and serving.
    pub fn start() -> Self {
        Self::claimed(json!({}))
    }

    pub fn claimed(settings: Value) -> Self {
        let sandbox = Self::unclaimed();
        assert_eq!(sandbox.claim(settings)["ok"], true);
        sandbox
    }

    pub fn unclaimed() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("talon-agent-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let http = UnixListener::bind(directory.join("http")).unwrap();
        let control = Seqpacket::listen(&directory.join("control"));
        let child = Command::new("sh")
            .args(["-c", "exec 3<&0 4<&1 </dev/null >/dev/null; exec \"$@\"", "sh"])
            .args(["unshare", "--pid", "--mount", "--uts", "--ipc", "--net", "--fork", "--mount-proc", "--kill-child"])
            .args([env!("CARGO_BIN_EXE_talon-agent"), "init"])
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(http)))
            .stdout(Stdio::from(control))
            .spawn()
            .unwrap();
        let control = Seqpacket::connect(&directory.join("control"));
        Self { directory, child, control }
    }

    pub fn claim(&self, settings: Value) -> Value {
        let mut all =
            json!({"id": "sbx", "token": TOKEN, "mode": "plain", "workdir": "/tmp", "env": {"GIVEN": "at the claim"}});
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        self.tell(json!({"op": "claim", "settings": all}))
    }

    pub fn tell(&self, message: Value) -> Value {
        serde_json::from_slice(&self.control.exchange(message.to_string().as_bytes())).unwrap()
    }

    pub fn call(&self, method: &str, target: &str) -> Call {
        self.anonymous(method, target).header("Authorization", &format!("Bearer {TOKEN}"))
    }

    pub fn anonymous(&self, method: &str, target: &str) -> Call {
        Call::new(&self.directory.join("http"), method, target)
    }

    /// A command through `/v2/exec`, with its whole answer.
    pub fn exec(&self, body: Value) -> Value {
        let answer = self.call("POST", "/v2/exec").json(&body).send();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.value()
    }

    /// Output of a shell command that must succeed.
    pub fn output(&self, command: &str) -> String {
        let ended = self.exec(json!({"command": command}));
        assert_eq!(ended["exit_code"], 0, "{command}: {ended}");
        ended["stdout"].as_str().unwrap().to_owned()
    }

    /// Living processes whose command line begins with `words`.
    pub fn count(&self, words: &str) -> usize {
        let list = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline && echo; done 2>/dev/null; true";
        self.output(list).lines().filter(|line| line.starts_with(words)).count()
    }

    /// Exit code of the sandbox once it has ended.
    pub fn ended(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "the sandbox does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.tell(json!({"op": "stop", "grace_ms": 0}));
            self.ended();
        }
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// Looks until `condition` holds.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
