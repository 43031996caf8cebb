//! What the whole agent shares: the claim's settings, the process table, the reaper and the cgroup's meters.
//!
//! Made once by `init` when the sandbox is claimed; every handler gets an `Rc` of it. Invariant: single-threaded.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use serde::Deserialize;
use tokio::sync::Notify;

use crate::code::Kernels;
use crate::commands::reaper::Reaper;
use crate::commands::table::Table;
use crate::error::Result;
use crate::isolated::Isolated;
use crate::metrics::Meters;
use crate::pty::Terminals;
use crate::record::{self, Recorder};
use crate::sessions::Sessions;
use crate::users::{self, Identity};

/// The claim's settings (contract between worker and agent); unknown keys are for other modules.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub id: String,
    pub token: String,
    pub hostname: String,
    pub env: BTreeMap<String, String>,
    /// Default user of processes and files: a name, an id, "uid:gid"; empty is root.
    pub user: String,
    pub workdir: String,
    pub entrypoint: Option<Vec<String>>,
    pub dns: Vec<String>,
    pub hosts: BTreeMap<String, String>,
    /// Names of the descriptors passed with the claim, in their order.
    pub fds: Vec<String>,
    pub record: Record,
    pub extensions: serde_json::Map<String, serde_json::Value>,
    pub exec_envs_file: Option<String>,
    pub limits: Limits,
    pub hardening: Hardening,
    /// Answer on 127.0.0.1:44772 inside the sandbox too.
    pub loopback: bool,
    /// Tree of processes not sealed off: for the agent's own tests on hosts that cannot seal.
    pub mode: String,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct Record {
    pub mode: String,
    pub input: bool,
    pub strict: bool,
    /// What must not appear in the recording.
    pub secrets: Vec<String>,
}

/// What processes of the sandbox must do without, beyond the usual.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct Hardening {
    /// "none": not even root has any.
    pub capabilities: String,
    /// Only what lies in these directories, and in the usual ones of `seal`, can be changed; none: no such limit.
    pub writable: Option<Vec<String>>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub memory: Option<u64>,
    pub cpu: Option<f64>,
    pub pids: Option<u64>,
}

pub struct Agent {
    pub settings: RefCell<Settings>,
    pub reaper: Reaper,
    pub table: Table,
    pub meters: Meters,
    pub terminals: Terminals,
    pub sessions: Sessions,
    pub isolated: Isolated,
    pub kernels: Kernels,
    pub recorder: Rc<Recorder>,
    /// The agent's own oom_score_adj is below zero and must not be inherited.
    pub protected_from_oom: bool,
    /// A request was answered; see `init`.
    pub activity: Notify,
    /// Set once the sandbox is stopping: nothing new is started.
    pub stopping: Cell<bool>,
}

impl Agent {
    /// # Errors
    /// When the recording cannot be begun.
    pub fn new(settings: Settings, mut fds: BTreeMap<String, OwnedFd>) -> Result<Self> {
        let meters = Meters::open(&mut fds, &settings.limits);
        let recorder = record::begin(&settings, fds.remove("recording"))?;
        let score = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        Ok(Self {
            settings: RefCell::new(settings),
            reaper: Reaper::default(),
            table: Table::default(),
            meters,
            terminals: Terminals::default(),
            sessions: Sessions::default(),
            isolated: Isolated::default(),
            kernels: Kernels::default(),
            recorder: Rc::new(recorder),
            protected_from_oom: score.trim().starts_with('-'),
            activity: Notify::new(),
            stopping: Cell::new(false),
        })
    }

    /// The identity a request's `user` means; `None` or "" is the sandbox's default user.
    pub fn identity(&self, user: Option<&str>) -> Result<Identity> {
        match user.filter(|u| !u.is_empty()) {
            Some(user) => users::identify(user),
            None => users::identify(&self.settings.borrow().user),
        }
    }

    /// Where relative paths start and commands run unless told otherwise.
    pub fn workdir(&self) -> String {
        let settings = self.settings.borrow();
        if settings.workdir.is_empty() {
            "/".to_owned()
        } else {
            settings.workdir.clone()
        }
    }
}
