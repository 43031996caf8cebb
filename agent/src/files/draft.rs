//! Writes a file whole or not at all: into a draft beside its place, which is then renamed over it.
//!
//! Called by uploads, the native PUT and replace. Invariants: memory is one buffer however large the file is; a draft that is not
//! published is removed; links are followed, so the file they lead to is replaced, never the link; an existing file keeps its mode
//! and owner unless told otherwise.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{fault, work};
use crate::error::{Error, Result};
use crate::users::Identity;
use crate::{sys, sys_paths};

const BUFFER_BYTES: usize = 256 << 10;
const MAX_LINKS: usize = 40;
const NEW_FILE_MODE: u32 = 0o644;

/// What a file shall be once written; `None` keeps what is there, or takes the default.
#[derive(Debug, Default, Clone)]
pub struct Attributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// Where a file will be.
#[derive(Debug, Clone)]
pub struct Place {
    path: PathBuf,
    wanted: Attributes,
    old: Option<Arc<Metadata>>,
}

impl Place {
    /// Finds what `path` leads to; makes missing parents when told to, which then belong to the file's owner.
    ///
    /// # Errors
    /// 404 when the parent is not there, 400 when something else than a file is.
    pub fn find(path: &Path, wanted: Attributes, parents: bool) -> Result<Self> {
        let path = follow_links(path)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        if parents {
            super::edit::make_parents(parent, wanted.uid, wanted.gid)?;
        }
        let old = match fs::symlink_metadata(&path) {
            Ok(old) if old.is_dir() => return Err(fault::on(&path)(io::Error::from_raw_os_error(libc::EISDIR))),
            Ok(old) if !old.is_file() => return Err(fault::not_regular(&path)),
            Ok(old) => Some(Arc::new(old)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::metadata(parent).map_err(fault::on(parent))?;
                None
            }
            Err(error) => return Err(fault::on(&path)(error)),
        };
        Ok(Self { path, wanted, old })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn follow_links(path: &Path) -> Result<PathBuf> {
    let mut found = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&found) {
            Ok(target) => found = found.parent().unwrap_or(Path::new("/")).join(target),
            Err(_no_link) => return Ok(found),
        }
    }
    Err(fault::on(path)(io::Error::from_raw_os_error(libc::ELOOP)))
}

pub struct Draft {
    identity: Identity,
    file: Arc<File>,
    /// `None` once it is published.
    temporary: Option<PathBuf>,
    buffer: Vec<u8>,
    size: u64,
    hash: Option<Sha256>,
}

/// What was written.
pub struct Published {
    pub size: u64,
    /// Hexadecimal, where it was asked for.
    pub sha256: Option<String>,
}

impl Draft {
    /// A draft in the directory of its place.
    pub fn beside(identity: &Identity, place: &Place) -> Result<Self> {
        work::brief(identity, || Ok(Self::new(identity, create_beside(place)?)))
    }

    /// A draft whose place is not known yet.
    pub fn aside(identity: &Identity) -> Result<Self> {
        work::brief(identity, || Ok(Self::new(identity, create_aside()?)))
    }

    fn new(identity: &Identity, (file, temporary): (File, PathBuf)) -> Self {
        Self {
            identity: identity.clone(),
            file: Arc::new(file),
            temporary: Some(temporary),
            buffer: Vec::new(),
            size: 0,
            hash: None,
        }
    }

    /// Computes its SHA-256 on the way, if `wanted`.
    pub fn hashed(mut self, wanted: bool) -> Self {
        self.hash = wanted.then(Sha256::new);
        self
    }

    pub async fn write(&mut self, data: &[u8]) -> Result<()> {
        self.size += data.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(data);
        }
        self.buffer.extend_from_slice(data);
        if self.buffer.len() < BUFFER_BYTES {
            return Ok(());
        }
        let (file, buffer) = (self.file.clone(), std::mem::take(&mut self.buffer));
        let path = self.temporary.clone().unwrap_or_default();
        self.buffer = work::long(&self.identity, move || {
            file.as_ref().write_all(&buffer).map_err(fault::on(&path))?;
            let mut buffer = buffer;
            buffer.clear();
            Ok(buffer)
        })
        .await?;
        Ok(())
    }

    /// Puts the file into its place.
    pub async fn publish(mut self, place: &Place) -> Result<Published> {
        let (file, buffer) = (self.file.clone(), std::mem::take(&mut self.buffer));
        let (temporary, target) = (self.temporary.clone().unwrap_or_default(), place.clone());
        let finish = move || finish(&file, &buffer, &temporary, &target);
        // A small file is written in one go; a large one may wait for the disk.
        let moved = if self.size < BUFFER_BYTES as u64 {
            work::brief(&self.identity, finish)?
        } else {
            work::long(&self.identity, finish).await?
        };
        if moved {
            self.temporary = None;
        }
        let sha256 = self.hash.take().map(|hash| hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        Ok(Published { size: self.size, sha256 })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // Gone already, or in a directory that is: nothing is left to remove.
            let _gone = work::brief(&self.identity, || fs::remove_file(&temporary).map_err(Error::from));
        }
    }
}

/// Writes a file anew within one call, for those already on a worker thread; `write` says whether to publish it.
pub fn rewrite(place: &Place, write: impl FnOnce(&mut File) -> Result<bool>) -> Result<()> {
    let (mut file, temporary) = create_beside(place)?;
    let moved =
        write(&mut file).and_then(|wanted| if wanted { finish(&file, &[], &temporary, place) } else { Ok(false) });
    if !matches!(moved, Ok(true)) {
        // Ours alone; if it is gone already, so much the better.
        let _gone = fs::remove_file(&temporary);
    }
    moved.map(drop)
}

/// Writes the rest, sets what is wanted, moves the draft; `false` when its content was copied instead.
fn finish(file: &File, rest: &[u8], temporary: &Path, place: &Place) -> Result<bool> {
    let mut writer = file;
    writer.write_all(rest).map_err(fault::on(&place.path))?;
    dress(file, place)?;
    match fs::rename(temporary, &place.path) {
        Ok(()) => Ok(true),
        // Another file system, a file that is a mount itself, or a directory that only lets its files be written.
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EXDEV | libc::EBUSY))
                || place.old.is_some() && is_refusal(&error) =>
        {
            copy(temporary, place).map(|()| false)
        }
        Err(error) => Err(fault::on(&place.path)(error)),
    }
}

/// Owner, group and mode; owner first, because a change of owner takes set-id bits away.
fn dress(file: &File, place: &Place) -> Result<()> {
    let (wanted, old) = (&place.wanted, place.old.as_deref());
    let now = file.metadata().map_err(fault::on(&place.path))?;
    let uid = wanted.uid.or(old.map(MetadataExt::uid)).filter(|&uid| uid != now.uid());
    let gid = wanted.gid.or(old.map(MetadataExt::gid)).filter(|&gid| gid != now.gid());
    if uid.is_some() || gid.is_some() {
        let done = std::os::unix::fs::fchown(file, uid, gid);
        // Who replaces another's file without being root owns the new one.
        if wanted.uid.is_some() || wanted.gid.is_some() {
            done.map_err(fault::on(&place.path))?;
        }
    }
    let mode = wanted.mode.or(old.map(|old| old.mode() & 0o7777)).unwrap_or(NEW_FILE_MODE);
    if now.mode() & 0o7777 != mode {
        file.set_permissions(Permissions::from_mode(mode)).map_err(fault::on(&place.path))?;
    }
    Ok(())
}

fn copy(temporary: &Path, place: &Place) -> Result<()> {
    let mut from = sys_paths::open(temporary, libc::O_RDONLY | libc::O_NOFOLLOW, 0).map_err(fault::on(temporary))?;
    let mut to = overwrite(&place.path)?;
    io::copy(&mut from, &mut to).map_err(fault::on(&place.path))?;
    dress(&to, place)
}

/// Opens the file itself, empty.
fn overwrite(path: &Path) -> Result<File> {
    let file = sys_paths::open(path, libc::O_WRONLY | libc::O_CREAT, NEW_FILE_MODE).map_err(fault::on(path))?;
    let is_plain =
        file.metadata().is_ok_and(|about| about.is_file()) && !sys_paths::is_kernel_file(&file).unwrap_or(true);
    if !is_plain {
        return Err(fault::not_regular(path));
    }
    file.set_len(0).map_err(fault::on(path))?;
    Ok(file)
}

fn create_beside(place: &Place) -> Result<(File, PathBuf)> {
    let directory = place.path.parent().unwrap_or(Path::new("/"));
    match create(directory) {
        Err(error) if place.old.is_some() && is_refusal(&error) => create_aside(),
        created => created.map_err(fault::on(&place.path)),
    }
}

fn create_aside() -> Result<(File, PathBuf)> {
    let directory = Path::new("/tmp");
    create(directory).map_err(fault::on(directory))
}

fn create(directory: &Path) -> io::Result<(File, PathBuf)> {
    let mut random = [0; 8];
    sys::random(&mut random)?;
    let path = directory.join(format!(".talon-{:016x}.part", u64::from_ne_bytes(random)));
    let file = sys_paths::open(&path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW, 0o600)?;
    Ok((file, path))
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
}
