//! Starts one sealed process of the sandbox: as a user, in a directory, with an environment and descriptors.
//!
//! Called by `process`, and directly by sessions and terminals. Invariant: what it starts is in a session of its own, sealed
//! (`seal`), tagged for `tree`, and registered with the reaper.

use std::cell::Cell;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;

use super::reaper::Exit;
use super::tree::Tag;
use crate::agent::Agent;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::sys_spawn::{self, Failure, Plan};
use crate::users::Identity;
use crate::{seal, sys};

/// Where one of the three standard descriptors leads.
pub enum Stdio {
    Null,
    /// A pipe; the agent's end (non-blocking) is in `Child`.
    Pipe,
    /// Given by the caller, closed in the agent after the start.
    Fd(OwnedFd),
}

pub struct Launch {
    pub argv: Vec<String>,
    pub cwd: String,
    /// Whole environment, see `environment::compose`.
    pub env: Environment,
    pub identity: Identity,
    pub stdin: Stdio,
    pub stdout: Stdio,
    pub stderr: Stdio,
    /// Standard input is a terminal and becomes the controlling one.
    pub terminal: bool,
}

/// A started process; dropping it does not end it.
pub struct Child {
    pub pid: i32,
    pub tag: Tag,
    pub exit: Rc<Exit>,
    pub stdin: Option<File>,
    pub stdout: Option<File>,
    pub stderr: Option<File>,
}

/// `bash -c` where there is bash, else `sh -c`.
pub fn shell(command: &str) -> Vec<String> {
    let bash = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"].into_iter().find(|p| Path::new(p).exists());
    vec![bash.unwrap_or("/bin/sh").to_owned(), "-c".to_owned(), command.to_owned()]
}

/// Starts it.
///
/// # Errors
/// 400 when the directory or the program cannot be used, 503 when the sandbox has no room for a process.
pub fn spawn(agent: &Agent, launch: Launch) -> Result<Child> {
    start(agent, launch, |_| ())
}

/// Starts the agent's own program: without filter, because it makes namespaces, and without tag, because it starts tagged processes.
pub fn spawn_self(agent: &Agent, mut launch: Launch) -> Result<Child> {
    launch.argv.insert(0, "/proc/self/exe".to_owned());
    start(agent, launch, |plan| {
        plan.filter.clear();
        (plan.bare, plan.rules) = (false, None);
        plan.tag = u64::MAX;
    })
}

/// Starts the agent's own program just as any other.
pub fn spawn_self_sealed(agent: &Agent, mut launch: Launch) -> Result<Child> {
    launch.argv.insert(0, "/proc/self/exe".to_owned());
    start(agent, launch, |_| ())
}

fn start(agent: &Agent, launch: Launch, adapt: impl FnOnce(&mut Plan)) -> Result<Child> {
    if agent.stopping.get() {
        return Err(Error::new(503, "sandbox_stopping", "RUNTIME_ERROR", "the sandbox is stopping"));
    }
    let [stdin, stdout, stderr] = [(&launch.stdin, true), (&launch.stdout, false), (&launch.stderr, false)].map(open);
    let (stdin, stdout, stderr) = (stdin?, stdout?, stderr?);
    let tag = next_tag();
    let mut plan = plan(
        agent,
        &launch,
        [stdin.theirs(&launch.stdin), stdout.theirs(&launch.stdout), stderr.theirs(&launch.stderr)],
        tag,
    )?;
    adapt(&mut plan);
    let pid = sys_spawn::spawn(&plan).map_err(|failure| explain(failure, &launch))?;
    let exit = agent.reaper.expect(pid);
    Ok(Child { pid, tag, exit, stdin: stdin.ours, stdout: stdout.ours, stderr: stderr.ours })
}

/// The two ends of a standard descriptor.
struct Ends {
    ours: Option<File>,
    theirs: Option<File>,
}

impl Ends {
    fn theirs(&self, stdio: &Stdio) -> RawFd {
        match (stdio, &self.theirs) {
            (Stdio::Fd(fd), _) => fd.as_raw_fd(),
            (_, Some(file)) => file.as_raw_fd(),
            (_, None) => -1,
        }
    }
}

fn open((stdio, input): (&Stdio, bool)) -> Result<Ends> {
    Ok(match stdio {
        Stdio::Fd(_) => Ends { ours: None, theirs: None },
        Stdio::Null => Ends { ours: None, theirs: Some(OpenOptions::new().read(true).write(true).open("/dev/null")?) },
        Stdio::Pipe => {
            let (read, write) = sys::pipe()?;
            let (ours, theirs) = if input { (write, read) } else { (read, write) };
            sys::set_nonblocking(&ours, true)?;
            Ends { ours: Some(ours), theirs: Some(theirs) }
        }
    })
}

thread_local!(static LAST: Cell<u64> = const { Cell::new(0) });

/// Tags of this agent begin above `number`: two agents that see the same processes must not use the same.
pub fn number_tags_from(number: u64) {
    LAST.set(number);
}

fn next_tag() -> Tag {
    LAST.set(LAST.get() + 1);
    Tag::new(LAST.get())
}

fn plan(agent: &Agent, launch: &Launch, stdio: [RawFd; 3], tag: Tag) -> Result<Plan> {
    let program =
        launch.argv.first().filter(|p| !p.is_empty()).ok_or_else(|| Error::invalid("the command is empty"))?;
    let path = launch.env.get("PATH").map_or("", String::as_str);
    let env: Vec<String> = launch.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(Plan {
        programs: cstrings(&candidates(program, path))?,
        argv: cstrings(&launch.argv)?,
        envp: cstrings(&env)?,
        cwd: cstrings(std::slice::from_ref(&launch.cwd))?.remove(0),
        uid: launch.identity.uid,
        gid: launch.identity.gid,
        groups: launch.identity.groups.clone(),
        stdio,
        terminal: launch.terminal,
        tag: tag.limit(),
        reset_oom_score: agent.protected_from_oom,
        bare: seal::bare(agent),
        rules: seal::rules(agent)?,
        filter: seal::filter(),
    })
}

/// The files a program's name can mean, as a shell would search them.
fn candidates(program: &str, path: &str) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    path.split(':').map(|dir| format!("{}/{program}", if dir.is_empty() { "." } else { dir })).collect()
}

fn cstrings(strings: &[String]) -> Result<Vec<CString>> {
    let convert = |s: &String| sys::cstring(s).map_err(|_| Error::invalid("a NUL byte in the command or environment"));
    strings.iter().map(convert).collect()
}

fn explain(failure: Failure, launch: &Launch) -> Error {
    let reason = std::io::Error::from_raw_os_error(failure.errno);
    let program = launch.argv.first().map_or("", String::as_str);
    match (failure.step, failure.errno) {
        ("enter the working directory", _) => Error::invalid(format!("cannot work in directory '{}'", launch.cwd))
            .code("invalid_working_directory")
            .cause(reason)
            .remedy("create the directory first, or give a cwd the user may enter"),
        ("execute", libc::E2BIG) => Error::invalid("the command and its environment are too long")
            .cause(reason)
            .remedy("put the script or the data into a file"),
        ("execute", libc::ENOENT | libc::EACCES | libc::ENOEXEC | libc::ENOTDIR) => {
            Error::new(400, "command_not_found", "RUNTIME_ERROR", format!("cannot run '{program}'"))
                .cause(reason)
                .remedy("check the name and that it is installed and executable in this image")
        }
        (_, libc::EAGAIN | libc::ENOMEM) => {
            let mut error =
                Error::new(503, "sandbox_exhausted", "RUNTIME_ERROR", "the sandbox has no room for another process");
            error.retryable = true;
            error.cause(reason).remedy("end processes, or give the sandbox more pids or memory")
        }
        (step, _) => Error::runtime(format!("could not {step} for '{program}'")).cause(reason),
    }
}
