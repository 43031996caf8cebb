//! The sandbox's own meters, read from its cgroup's files at the moment they are asked for.
//!
//! Used by both dialects' metrics routes and to tell an out-of-memory kill. The cgroup's directories come as descriptors with the claim
//! (v1: one per controller, v2: one). Invariant: no sampling sleep; CPU use is the share since the previous look.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::agent::Limits;
use crate::{sys, sys_files};

const UNLIMITED: u64 = 1 << 62;

pub struct Meters {
    directories: BTreeMap<String, OwnedFd>,
    oom_file: Option<File>,
    limits: RefCell<Limits>,
    /// (monotonic seconds, CPU seconds) of the previous look.
    last: Cell<(f64, f64)>,
}

/// One look at the meters.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    pub cpu_count: f64,
    pub cpu_used_pct: f64,
    pub cpu_usage_s: f64,
    pub memory_bytes: u64,
    pub memory_limit_bytes: u64,
    pub pids: u64,
    pub oom_kills: u64,
}

impl Meters {
    /// Takes the "cgroup.*" descriptors out of `fds`.
    pub fn open(fds: &mut BTreeMap<String, OwnedFd>, limits: &Limits) -> Self {
        let names: Vec<String> = fds.keys().filter(|name| name.starts_with("cgroup.")).cloned().collect();
        let directories = names.into_iter().filter_map(|name| {
            let fd = fds.remove(&name)?;
            Some((name.trim_start_matches("cgroup.").to_owned(), fd))
        });
        let mut meters = Self {
            directories: directories.collect(),
            oom_file: None,
            limits: RefCell::new(limits.clone()),
            last: Cell::new((0.0, 0.0)),
        };
        let oom = meters.file("memory", "memory.oom_control").or_else(|| meters.file("unified", "memory.events"));
        meters.oom_file = oom;
        meters.last.set((sys::monotonic_seconds(), meters.cpu_usage_s()));
        meters
    }

    pub fn set_limits(&self, limits: Limits) {
        self.limits.replace(limits);
    }

    /// Out-of-memory kills in the sandbox so far.
    pub fn oom_kills(&self) -> u64 {
        let Some(file) = &self.oom_file else { return 0 };
        let mut text = [0; 512];
        let count = file.read_at(&mut text, 0).unwrap_or(0);
        field(&String::from_utf8_lossy(&text[..count]), "oom_kill").unwrap_or(0)
    }

    pub fn read(&self) -> Reading {
        let cpu_count = self.cpu_count();
        let cpu_usage_s = self.cpu_usage_s();
        Reading {
            cpu_count,
            cpu_used_pct: self.share(cpu_usage_s, cpu_count),
            cpu_usage_s,
            memory_bytes: self.memory_bytes(),
            memory_limit_bytes: self.memory_limit(),
            pids: self.number("pids", "pids.current").unwrap_or(0),
            oom_kills: self.oom_kills(),
        }
    }

    /// Per cent of the sandbox's CPUs used since the previous look.
    fn share(&self, usage_s: f64, cpu_count: f64) -> f64 {
        let now = sys::monotonic_seconds();
        let (then, before) = self.last.get();
        let elapsed = now - then;
        if elapsed < 0.001 {
            return 0.0;
        }
        self.last.set((now, usage_s));
        (100.0 * (usage_s - before) / elapsed / cpu_count.max(0.01)).clamp(0.0, 100.0)
    }

    fn cpu_usage_s(&self) -> f64 {
        if let Some(nanoseconds) = self.number("cpuacct", "cpuacct.usage") {
            return nanoseconds as f64 / 1e9;
        }
        let stat = self.text("unified", "cpu.stat").unwrap_or_default();
        field(&stat, "usage_usec").map_or(0.0, |microseconds| microseconds as f64 / 1e6)
    }

    fn cpu_count(&self) -> f64 {
        let host = || std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        self.limits.borrow().cpu.filter(|&cpu| cpu > 0.0).or_else(|| self.cpu_quota()).unwrap_or_else(host)
    }

    fn cpu_quota(&self) -> Option<f64> {
        let (quota, period) = match self.text("unified", "cpu.max") {
            Some(text) => {
                let mut words = text.split_whitespace().map(|word| word.parse::<f64>().ok());
                (words.next()??, words.next()??)
            }
            None => (self.number("cpu", "cpu.cfs_quota_us")? as f64, self.number("cpu", "cpu.cfs_period_us")? as f64),
        };
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    }

    /// Memory in use, without file pages that can be dropped at once.
    fn memory_bytes(&self) -> u64 {
        let (current, inactive) = match self.number("memory", "memory.usage_in_bytes") {
            Some(usage) => (usage, self.memory_field("memory", "total_inactive_file")),
            None => {
                (self.number("unified", "memory.current").unwrap_or(0), self.memory_field("unified", "inactive_file"))
            }
        };
        current.saturating_sub(inactive)
    }

    fn memory_field(&self, directory: &str, name: &str) -> u64 {
        field(&self.text(directory, "memory.stat").unwrap_or_default(), name).unwrap_or(0)
    }

    fn memory_limit(&self) -> u64 {
        let files = [("memory", "memory.limit_in_bytes"), ("unified", "memory.max")];
        let limit = files.into_iter().find_map(|(directory, name)| self.number(directory, name));
        limit.or(self.limits.borrow().memory).filter(|&limit| limit < UNLIMITED).unwrap_or_else(host_memory)
    }

    fn number(&self, directory: &str, name: &str) -> Option<u64> {
        let text = self.text(directory, name).or_else(|| self.text("unified", name))?;
        text.trim().parse().ok()
    }

    fn text(&self, directory: &str, name: &str) -> Option<String> {
        let mut text = String::new();
        self.file(directory, name)?.read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn file(&self, directory: &str, name: &str) -> Option<File> {
        sys_files::open_at(self.directories.get(directory)?.as_fd(), name).ok()
    }
}

fn host_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    field(&text, "MemTotal:").unwrap_or(0) * 1024
}

/// The number behind `name` in a file of "name number" lines.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_whole_words() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(field(text, "oom_kill"), Some(3));
        assert_eq!(field(text, "oom"), None);
    }

    #[test]
    fn without_a_cgroup_the_host_is_told() {
        let reading = Meters::open(&mut BTreeMap::new(), &Limits::default()).read();
        assert!(reading.cpu_count >= 1.0 && reading.memory_limit_bytes > 0);
        assert_eq!(reading.oom_kills, 0);
    }
}
