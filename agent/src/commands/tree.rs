//! Finds and ends everything that descends from a process, daemons that left its session included.
//!
//! Each process the agent starts has a tag: a value of RLIMIT_RTTIME, which no program uses (real-time scheduling is refused in a
//! sandbox), which every descendant inherits, which none can raise again, and which anyone can read in /proc/PID/limits. So no
//! watcher process per command is needed, and a double fork with `setsid` does not get away. Who lowers the limit on purpose does;
//! the sandbox's own walls still hold it.

use std::fs;
use std::time::Duration;

use crate::sys;

const BASE: u64 = 1 << 61;
/// Against a fork bomb: each round stops all it finds before it kills them.
const MAX_ROUNDS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(u64);

impl Tag {
    pub(super) fn new(number: u64) -> Self {
        Self(BASE + number)
    }

    pub(super) fn limit(self) -> u64 {
        self.0
    }

    /// Pids of all living processes with this tag.
    pub fn members(self) -> Vec<i32> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|&pid| pid != 1 && self.marks(pid) && is_alive(pid)).filter_map(own_number).collect()
    }

    fn marks(self, pid: i32) -> bool {
        let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Max realtime timeout"));
        let limit = line.and_then(|line| line.split_whitespace().nth(3));
        limit.is_some_and(|limit| limit == self.0.to_string())
    }

    /// Sends a signal to each.
    pub fn signal(self, signal: i32) {
        for pid in self.members() {
            // It may have ended since: nothing to do then.
            let _ended = sys::kill(pid, signal);
        }
    }

    /// Kills all, and those they start meanwhile, until none is left.
    pub async fn kill(self) {
        for round in 0..MAX_ROUNDS {
            let members = self.members();
            if members.is_empty() {
                return;
            }
            for signal in [libc::SIGSTOP, libc::SIGKILL] {
                members.iter().for_each(|&pid| drop(sys::kill(pid, signal)));
            }
            tokio::time::sleep(Duration::from_millis(if round < 10 { 1 } else { 20 })).await;
        }
    }
}

/// The pid as this agent's PID namespace has it: an isolated session's agent sees the outer namespace's /proc.
fn own_number(pid: i32) -> Option<i32> {
    thread_local!(static NESTED: bool = depth("self") > 1);
    if !NESTED.with(|nested| *nested) {
        return Some(pid);
    }
    numbers(&pid.to_string()).last().copied()
}

fn depth(pid: &str) -> usize {
    numbers(pid).len()
}

/// The pids of a process from the namespace of /proc inwards.
fn numbers(pid: &str) -> Vec<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.map(|line| line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()).unwrap_or_default()
}

/// Neither a zombie nor gone.
fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
