//! Makes the claimed file system the root, and puts the few files into it that name the sandbox.
//!
//! Called once by `control` at the claim, before anything of the user runs. Invariant: files are written after the pivot, so a hostile
//! image's symbolic links lead only into the image itself.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{chown, DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::agent::Settings;
use crate::error::{Error, Result};
use crate::sys_files;
use crate::users::Identity;

const NEW_ROOT: &str = "/newroot";

/// Moves /proc, /dev and /sys over and changes the root.
pub fn enter() -> Result<()> {
    let failed = |step: &str| {
        let message = format!("could not enter the sandbox's file system: {step}");
        move |error: io::Error| Error::runtime(message).code("claim_failed").cause(error)
    };
    std::env::set_current_dir(NEW_ROOT).map_err(failed("/newroot"))?;
    for name in ["proc", "dev", "sys"] {
        mount_point(name).map_err(failed(name))?;
        sys_files::move_mount(&format!("/{name}"), name).map_err(failed(name))?;
    }
    sys_files::pivot_here().map_err(failed("pivot"))?;
    std::env::set_current_dir("/").map_err(failed("/"))
}

/// A real directory to mount on; whatever else an image has there gives way.
fn mount_point(name: &str) -> io::Result<()> {
    match fs::symlink_metadata(name) {
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => fs::remove_file(name)?,
        Err(_) => {}
    }
    fs::create_dir(name)
}

/// Host name, resolver, hosts: what programs look up about where they run.
pub fn name(settings: &Settings) -> Result<()> {
    fs::create_dir_all("/etc")?;
    if !settings.hostname.is_empty() {
        sys_files::set_hostname(&settings.hostname)?;
        replace("/etc/hostname", &format!("{}\n", settings.hostname))?;
    }
    if !settings.dns.is_empty() {
        let lines: String = settings.dns.iter().map(|server| format!("nameserver {server}\n")).collect();
        replace("/etc/resolv.conf", &(lines + "options timeout:2 attempts:3\n"))?;
    }
    replace("/etc/hosts", &hosts(settings))
}

fn hosts(settings: &Settings) -> String {
    let own = if settings.hostname.is_empty() { "" } else { &settings.hostname };
    let mut text = format!("127.0.0.1 localhost {own}\n::1 localhost ip6-localhost ip6-loopback\n");
    for (name, address) in &settings.hosts {
        text.push_str(&format!("{address} {name}\n"));
    }
    text
}

/// Writes a new file in place of whatever is there, a dangling symbolic link for instance.
fn replace(path: &str, text: &str) -> Result<()> {
    let failed = |error: io::Error| Error::runtime(format!("could not write {path}")).code("claim_failed").cause(error);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)
}

/// Makes the working directory for its user when the image has none.
pub fn ensure_workdir(path: &str, user: &Identity) -> Result<()> {
    if path.is_empty() || Path::new(path).exists() {
        return Ok(());
    }
    let parent = Path::new(path).parent().unwrap_or(Path::new("/"));
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o755).create(parent)?;
    builder.recursive(false).create(path)?;
    chown(path, Some(user.uid), Some(user.gid))?;
    Ok(())
}
