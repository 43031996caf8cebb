//! Starts a process by `clone(CLONE_VM | CLONE_VFORK)`: no page table is copied, so it costs the same however large the agent is.
//!
//! Called by `commands::spawn`. Invariant: between clone and exec the child only makes system calls on memory prepared by the parent,
//! because it runs in the parent's memory while the parent waits.

use std::ffi::{c_int, c_void, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sys::check;
use crate::{sys_caps, sys_landlock};

const STACK_BYTES: usize = 32 << 10;
/// The kernel's `struct sigaction` for a signal's default action: all zero. libc refuses to set the two signals it uses itself.
const DEFAULT_ACTION: [u64; 4] = [0; 4];

/// Everything about a process that is about to be, ready for the kernel.
pub struct Plan {
    /// Tried in order until one can be executed.
    pub programs: Vec<CString>,
    pub argv: Vec<CString>,
    pub envp: Vec<CString>,
    pub cwd: CString,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Descriptors that become 0, 1 and 2.
    pub stdio: [RawFd; 3],
    /// Descriptor 0 becomes the controlling terminal.
    pub terminal: bool,
    /// Value of RLIMIT_RTTIME, by which `commands::tree` finds all that descends from this process.
    pub tag: u64,
    /// Undo a protective oom_score_adj of the agent.
    pub reset_oom_score: bool,
    /// Without any capability, now and after whatever it executes.
    pub bare: bool,
    /// Landlock rules it is put under.
    pub rules: Option<OwnedFd>,
    pub filter: Vec<libc::sock_filter>,
}

/// What the child saw go wrong: the step's name and errno.
#[derive(Debug, Clone, Copy)]
pub struct Failure {
    pub step: &'static str,
    pub errno: i32,
}

struct Shared<'a> {
    plan: &'a Plan,
    programs: Vec<*const libc::c_char>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    filter: libc::sock_fprog,
    failure: Option<Failure>,
}

/// Starts the process; the caller reaps it.
///
/// # Errors
/// `Failure` names the step; `clone` itself failing reads as step "start a process".
pub fn spawn(plan: &Plan) -> Result<i32, Failure> {
    let filter = libc::sock_fprog { len: plan.filter.len() as u16, filter: plan.filter.as_ptr().cast_mut() };
    let mut shared = Shared {
        plan,
        programs: pointers(&plan.programs),
        argv: pointers(&plan.argv),
        envp: pointers(&plan.envp),
        filter,
        failure: None,
    };
    let mut stack: Vec<u128> = Vec::with_capacity(STACK_BYTES / 16);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack's end is 16-byte aligned and unused by anyone else; CLONE_VFORK keeps the parent waiting until the child
    // has executed or exited, so `shared` and the stack outlive the child's use of them.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(STACK_BYTES / 16);
        libc::clone(child, top.cast(), flags, (&raw mut shared).cast())
    };
    let failed = check(i64::from(pid)).err();
    // SAFETY: the child wrote through the pointer; a volatile read keeps the compiler from assuming the old value.
    let failure = unsafe { std::ptr::read_volatile(&raw const shared.failure) };
    match (failed, failure) {
        (Some(error), _) => Err(Failure { step: "start a process", errno: error.raw_os_error().unwrap_or(0) }),
        (None, Some(failure)) => {
            // SAFETY: the child has exited; reaping it here keeps it from the table.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            Err(failure)
        }
        (None, None) => Ok(pid),
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

extern "C" fn child(shared: *mut c_void) -> c_int {
    // SAFETY: the pointer is the parent's `shared`, which waits for us; nobody else touches it meanwhile.
    let shared = unsafe { &mut *shared.cast::<Shared<'_>>() };
    shared.failure = Some(prepare(shared).err().unwrap_or_else(|| execute(shared)));
    // SAFETY: leaves without running the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

fn step(name: &'static str, result: i64) -> Result<(), Failure> {
    check(result).map(drop).map_err(|error| Failure { step: name, errno: error.raw_os_error().unwrap_or(0) })
}

fn told(name: &'static str, result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| Failure { step: name, errno: error.raw_os_error().unwrap_or(0) })
}

/// Session, descriptors, limits, identity, directory, filter: in the order their permissions allow.
fn prepare(shared: &Shared<'_>) -> Result<(), Failure> {
    let plan = shared.plan;
    // SAFETY: only system calls on memory the parent prepared; the raw identity calls change this task alone, where libc's wrappers
    // would try to change the parent's threads. The signals' actions and the mask are this task's own (no CLONE_SIGHAND). What was
    // ignored where the server was started, as SIGINT is for jobs in the background, would be for the command too: a shell could not trap it.
    unsafe {
        for signal in 1..=64 {
            libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT_ACTION.as_ptr(), std::ptr::null_mut::<u64>(), 8);
        }
        step("start a session", i64::from(libc::setsid()))?;
        place_stdio(&plan.stdio)?;
        if plan.terminal {
            step("take the terminal", i64::from(libc::ioctl(0, libc::TIOCSCTTY, 0)))?;
        }
        if plan.reset_oom_score {
            write_file(c"/proc/self/oom_score_adj", b"0");
        }
        let tag = libc::rlimit { rlim_cur: plan.tag, rlim_max: plan.tag };
        step("set limits", i64::from(libc::setrlimit(libc::RLIMIT_RTTIME, &raw const tag)))?;
        step("set groups", libc::syscall(libc::SYS_setgroups, plan.groups.len(), plan.groups.as_ptr()))?;
        step("set the group", libc::syscall(libc::SYS_setresgid, plan.gid, plan.gid, plan.gid))?;
        if plan.bare {
            told("give up capabilities", sys_caps::limit_bounding_set(0))?;
        }
        step("set the user", libc::syscall(libc::SYS_setresuid, plan.uid, plan.uid, plan.uid))?;
        step("enter the working directory", i64::from(libc::chdir(plan.cwd.as_ptr())))?;
        if plan.bare {
            told("give up capabilities", sys_caps::limit_to(0))?;
        }
        if let Some(rules) = &plan.rules {
            step("restrict the files it may change", sys_landlock::enter(rules.as_raw_fd()))?;
        }
        if shared.filter.len > 0 {
            let filter = &raw const shared.filter;
            step(
                "install the seccomp filter",
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, filter),
            )?;
        }
        let none: libc::sigset_t = std::mem::zeroed();
        step("unblock signals", i64::from(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())))
    }
}

/// Puts the three descriptors at 0, 1 and 2; all others close on exec.
///
/// # Safety
/// For the cloned child only: it changes the descriptor table.
unsafe fn place_stdio(stdio: &[RawFd; 3]) -> Result<(), Failure> {
    let mut high = [0; 3];
    // SAFETY: plain descriptor calls; the copies above 10 keep a source from being overwritten before it is placed.
    unsafe {
        for (copy, &fd) in high.iter_mut().zip(stdio) {
            *copy = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 10);
            step("copy a descriptor", i64::from(*copy))?;
        }
        for (target, &copy) in high.iter().enumerate() {
            step("place a descriptor", i64::from(libc::dup2(copy, target as i32)))?;
        }
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
    Ok(())
}

/// # Safety
/// For the cloned child only; failures are ignored.
unsafe fn write_file(path: &std::ffi::CStr, data: &[u8]) {
    // SAFETY: path and data are valid for the calls.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, data.as_ptr().cast(), data.len());
            libc::close(fd);
        }
    }
}

fn execute(shared: &Shared<'_>) -> Failure {
    let mut worst = libc::ENOENT;
    for &program in shared.programs.iter().filter(|p| !p.is_null()) {
        // SAFETY: program, argv and envp are null-terminated arrays of C strings the parent keeps alive.
        unsafe { libc::execve(program, shared.argv.as_ptr(), shared.envp.as_ptr()) };
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        if errno != libc::ENOENT && errno != libc::ENOTDIR {
            worst = errno;
        }
    }
    Failure { step: "execute", errno: worst }
}
