//! `talon-agent isolate SPEC`: takes this process into namespaces of its own and serves one isolated session there.
//!
//! Started by `session` with a listening HTTP socket as descriptor 0 and a channel to the outer agent as descriptor 1. It needs nothing
//! the sealed agent does not have: a new user namespace gives it all privileges over what it makes, and none over the sandbox.
//! Invariant: everything outside the workspace, the overlays, the binds and /tmp is read-only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::spec::{Mode, Profile, Spec};
use crate::agent::Settings;
use crate::commands::spawn;
use crate::{init, sys, sys_isolate, sys_mount};

pub fn main(spec: Option<String>) -> u8 {
    match run(&spec.unwrap_or_default()) {
        Ok(()) => 0,
        Err(_told) => 70,
    }
}

fn run(spec: &str) -> io::Result<()> {
    let http = UnixListener::from(sys::inherit(0)?);
    let channel = File::from(sys::inherit(1)?);
    let settings = enter(spec, &channel).and_then(|settings| {
        writeln!(&channel, "ok")?;
        Ok(settings)
    });
    let settings = settings.inspect_err(|error| {
        // The outer agent may be gone: then nobody wants to know.
        let _gone = writeln!(&channel, "{error}");
    })?;
    drop(channel);
    // Its own process number keeps the tags of two agents apart.
    let number = u64::from(std::process::id()) << 20;
    sys_isolate::run_first(|| {
        spawn::number_tags_from(number);
        init::serve_claimed(http, settings).unwrap_or(70)
    })?;
    Ok(())
}

fn enter(spec: &str, channel: &File) -> io::Result<Settings> {
    let spec: Spec = serde_json::from_str(spec)?;
    step("make a user namespace", sys_isolate::unshare(libc::CLONE_NEWUSER))?;
    writeln!(&*channel, "map")?;
    // The outer agent maps the ids now; then it sends the settings.
    let mut line = String::new();
    BufReader::new(channel).read_line(&mut line)?;
    let settings = serde_json::from_str(&line)?;
    step("become its root", sys_isolate::become_root())?;
    let net = if spec.share_net == Some(false) { libc::CLONE_NEWNET } else { 0 };
    let others = libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWPID | net;
    step("make namespaces", sys_isolate::unshare(others))?;
    step("make mounts private", sys_isolate::make_private())?;
    mounts(&spec)?;
    Ok(settings)
}

/// What is said when a step fails.
fn step<T>(what: &str, done: io::Result<T>) -> io::Result<T> {
    done.map_err(|error| io::Error::new(error.kind(), format!("could not {what}: {error}")))
}

/// A tree that stays as it is while all else becomes read-only, and where it goes.
struct Kept {
    tree: OwnedFd,
    at: String,
}

fn mounts(spec: &Spec) -> io::Result<()> {
    let mut kept = Vec::new();
    for path in &spec.extra_writable {
        kept.push(keep(path, path, false)?);
    }
    for bind in &spec.binds {
        kept.push(keep(&bind.source, bind.dest.as_ref().unwrap_or(&bind.source), bind.readonly)?);
    }
    let strict = spec.profile != Some(Profile::Balanced);
    if !strict {
        kept.push(keep("/tmp", "/tmp", false)?);
    }
    let workspace = (spec.workspace.path.clone(), spec.workspace.mode, keep_lower(&spec.workspace.path)?);
    let overlays =
        spec.overlays.iter().map(|overlay| Ok((overlay.path.clone(), overlay.mode, keep_lower(&overlay.path)?)));
    let overlays: Vec<_> = overlays.collect::<io::Result<_>>()?;
    step("make the rest read-only", sys_isolate::make_read_only(c"/"))?;
    for scratch in ["/tmp", "/dev/shm"] {
        if (strict || scratch != "/tmp") && Path::new(scratch).is_dir() {
            step("mount a private directory", sys_isolate::mount(c"tmpfs", Path::new(scratch), "mode=1777"))?;
        }
    }
    for Kept { tree, at } in &kept {
        step(&format!("bind {at}"), place(tree, at))?;
    }
    for (path, mode, lower) in &overlays {
        writable(path, *mode, lower, false)?;
    }
    let (path, mode, lower) = &workspace;
    writable(path, *mode, lower, true)
}

fn keep(source: &str, at: &str, read_only: bool) -> io::Result<Kept> {
    let tree = step(&format!("bind {source}"), sys_isolate::clone_tree(Path::new(source)))?;
    if read_only {
        step(&format!("make {source} read-only"), sys_isolate::make_tree_read_only(&tree))?;
    }
    Ok(Kept { tree, at: at.to_owned() })
}

fn keep_lower(path: &str) -> io::Result<OwnedFd> {
    step(&format!("use {path}"), sys_isolate::clone_tree(Path::new(path)))
}

fn place(tree: &OwnedFd, at: &str) -> io::Result<()> {
    let target = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(at)?;
    sys_mount::attach(tree, &OwnedFd::from(target))
}

/// The workspace or an overlay. `main` leaves this process in the directory of its changes, which nothing else can reach.
fn writable(path: &str, mode: Mode, lower: &OwnedFd, main: bool) -> io::Result<()> {
    match mode {
        // Bound again even so: a private /tmp may lie over it by now.
        Mode::Ro => {
            step(&format!("make {path} read-only"), sys_isolate::make_tree_read_only(lower))?;
            return step(&format!("bind {path}"), place(lower, path));
        }
        Mode::Rw => return step(&format!("bind {path}"), place(lower, path)),
        Mode::Overlay => {}
    }
    let here = Path::new(path);
    let what = format!("lay an overlay over {path}");
    step(&what, sys_isolate::mount(c"tmpfs", here, "mode=0700"))?;
    for name in ["lower", "upper", "work"] {
        step(&what, fs::create_dir(here.join(name)))?;
    }
    step(&what, place(lower, &format!("{path}/lower")))?;
    like(&here.join("upper"), &here.join("lower"))?;
    if main {
        step(&what, std::env::set_current_dir(here.join("upper")))?;
    }
    let escaped = path.replace('\\', "\\\\").replace(',', "\\,").replace(':', "\\:");
    let options = format!("lowerdir={escaped}/lower,upperdir={escaped}/upper,workdir={escaped}/work,userxattr");
    step(&what, sys_isolate::mount(c"overlay", here, &options))
}

/// The overlay's root looks like its lower directory.
fn like(upper: &Path, lower: &Path) -> io::Result<()> {
    use std::os::unix::fs::{chown, MetadataExt};
    let about = fs::metadata(lower)?;
    fs::set_permissions(upper, about.permissions())?;
    chown(upper, Some(about.uid()), Some(about.gid()))
}
