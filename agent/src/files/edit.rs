//! Changes to the tree: make, move, delete, permissions.
//!
//! Called by both dialects' routes, on a worker thread where it may take long. Invariant: moving never overwrites unless told to;
//! deleting never follows a link.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{chown, lchown, symlink, DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::draft::Attributes;
use super::{download, fault};
use crate::error::{Error, Result};
use crate::sys_paths;

/// Makes `path` and what is missing above it; those that were there stay as they are.
pub fn make_directory(path: &Path, wanted: &Attributes) -> Result<()> {
    if let Some(parent) = path.parent() {
        make_parents(parent, wanted.uid, wanted.gid)?;
    }
    make_one(path, wanted)
}

/// Makes `path` alone; fine when it is there.
pub fn make_one(path: &Path, wanted: &Attributes) -> Result<()> {
    match DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => set(path, wanted),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(fault::on(path)(error)),
    }
}

/// Makes missing directories down to `path`; new ones belong to the given owner.
pub fn make_parents(path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|p| !p.exists()).collect();
    let wanted = Attributes { mode: None, uid, gid };
    missing.into_iter().rev().try_for_each(|directory| make_one(directory, &wanted))
}

/// Sets owner, group and mode of what `path` leads to.
pub fn set(path: &Path, wanted: &Attributes) -> Result<()> {
    if wanted.uid.is_some() || wanted.gid.is_some() {
        chown(path, wanted.uid, wanted.gid).map_err(fault::on(path))?;
    }
    match wanted.mode {
        Some(mode) => fs::set_permissions(path, Permissions::from_mode(mode)).map_err(fault::on(path)),
        None => Ok(()),
    }
}

/// Removes one file or link; fine when there is none.
pub fn delete_file(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => Err(fault::on(path)(io::Error::from_raw_os_error(libc::EISDIR))),
        _ => missing_is_fine(fs::remove_file(path)).map_err(fault::on(path)),
    }
}

/// Removes whatever is at `path` with all below it; fine when there is nothing.
pub fn delete_tree(path: &Path) -> Result<()> {
    if path.file_name().is_none() {
        return Err(Error::invalid(format!("cannot delete {}", path.display()))
            .remedy("name a directory below the root, without '..' at the end"));
    }
    let removed = match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    };
    missing_is_fine(removed).map_err(fault::on(path))
}

/// Removes an empty directory, a file or a link.
pub fn delete_one(path: &Path) -> Result<()> {
    let about = fs::symlink_metadata(path).map_err(fault::on(path))?;
    let removed = if about.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    removed.map_err(fault::on(path))
}

fn missing_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Moves, to another file system too.
///
/// # Errors
/// 409 when something is at `to` and it shall not be overwritten.
pub fn rename(from: &Path, to: &Path, overwrite: bool) -> Result<()> {
    let about = fs::symlink_metadata(from).map_err(fault::on(from))?;
    let parent = to.parent().unwrap_or(Path::new("/"));
    fs::metadata(parent).map_err(fault::on(parent))?;
    let renamed = if overwrite { fs::rename(from, to) } else { sys_paths::rename_new(from, to) };
    match renamed {
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => move_across(from, to, &about, overwrite),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(fault::on(from)(error)),
        renamed => renamed.map_err(fault::on(to)),
    }
}

fn move_across(from: &Path, to: &Path, about: &Metadata, overwrite: bool) -> Result<()> {
    if fs::symlink_metadata(to).is_ok() && !(overwrite && to.is_file() && about.is_file()) {
        return Err(fault::on(to)(io::Error::from_raw_os_error(libc::EEXIST)));
    }
    // Copied under a name of its own first, so that a failed copy leaves nothing at `to`.
    let partial = partial_name(to);
    let done = copy_tree(from, &partial).and_then(|()| fs::rename(&partial, to).map_err(fault::on(to)));
    if let Err(error) = done {
        delete_tree(&partial)?;
        return Err(error);
    }
    delete_tree(from)
}

fn partial_name(to: &Path) -> PathBuf {
    let mut random = [0; 8];
    // Without randomness the process id still makes it a name nobody else uses.
    let _fixed = crate::sys::random(&mut random);
    to.with_file_name(format!(".talon-{:x}-{:016x}.part", std::process::id(), u64::from_ne_bytes(random)))
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    copy_one(from, to)?;
    let mut result = Ok(());
    let mut times = vec![(from.to_owned(), to.to_owned())];
    super::walk::walk(from, usize::MAX, &mut |path, about| {
        let Ok(below) = path.strip_prefix(from) else { return true };
        let copy = to.join(below);
        result = copy_one(path, &copy);
        if about.is_dir() {
            times.push((path.to_owned(), copy));
        }
        result.is_ok()
    });
    result?;
    for (from, to) in times.iter().rev() {
        keep_times(from, to)?;
    }
    Ok(())
}

fn copy_one(from: &Path, to: &Path) -> Result<()> {
    let about = fs::symlink_metadata(from).map_err(fault::on(from))?;
    if about.is_dir() {
        DirBuilder::new().mode(0o700).create(to).map_err(fault::on(to))?;
    } else if about.is_symlink() {
        symlink(fs::read_link(from).map_err(fault::on(from))?, to).map_err(fault::on(to))?;
    } else {
        let (mut source, _) = download::open_regular(from)?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let mut copy = sys_paths::open(to, flags, 0o600).map_err(fault::on(to))?;
        io::copy(&mut source, &mut copy).map_err(fault::on(to))?;
    }
    // Only root can give files away; others own their copies.
    let _kept = lchown(to, Some(about.uid()), Some(about.gid()));
    if !about.is_symlink() {
        fs::set_permissions(to, Permissions::from_mode(about.mode() & 0o7777)).map_err(fault::on(to))?;
    }
    keep_times(from, to)
}

fn keep_times(from: &Path, to: &Path) -> Result<()> {
    let about = fs::symlink_metadata(from).map_err(fault::on(from))?;
    sys_paths::copy_times(to, &about).map_err(fault::on(to))
}
