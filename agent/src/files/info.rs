//! What is told of a file, in the two dialects' shapes.
//!
//! Called by the routes that list, search and stat. Invariant: links are described, never followed.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;

use super::{fault, modes};
use crate::error::Result;
use crate::{clock, users};

/// The execd API's FileInfo.
#[derive(Debug, Serialize)]
pub struct Info {
    pub path: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub size: u64,
    pub modified_at: String,
    pub created_at: String,
    pub owner: String,
    pub group: String,
    /// Octal digits as a decimal number.
    pub mode: u32,
}

/// The native API's FileInfo.
#[derive(Debug, Serialize)]
pub struct Stat {
    pub path: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub size: u64,
    pub mode: String,
    pub owner: String,
    pub group: String,
    pub uid: u32,
    pub gid: u32,
    pub modified_at: String,
    /// Where a symbolic link leads, as written in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// Describes files; remembers the names of the owners it has met, so that a long listing reads `/etc/passwd` once.
#[derive(Default)]
pub struct Describer {
    users: Vec<(u32, String)>,
    groups: Vec<(u32, String)>,
}

impl Describer {
    /// # Errors
    /// 404 and the like, see `fault`.
    pub fn info(&mut self, path: &Path) -> Result<Info> {
        let about = fs::symlink_metadata(path).map_err(fault::on(path))?;
        Ok(self.info_of(path, &about))
    }

    pub fn info_of(&mut self, path: &Path, about: &Metadata) -> Info {
        use std::os::unix::fs::MetadataExt;
        let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Info {
            path: path.to_string_lossy().into_owned(),
            kind: kind(about, "directory"),
            size: about.len(),
            modified_at: clock::rfc3339(modified),
            created_at: clock::rfc3339(created(about).unwrap_or(modified)),
            owner: name(&mut self.users, about.uid(), users::user_name),
            group: name(&mut self.groups, about.gid(), users::group_name),
            mode: modes::to_execd(about.mode()),
        }
    }

    /// # Errors
    /// 404 and the like, see `fault`.
    pub fn stat(&mut self, path: &Path) -> Result<Stat> {
        let about = fs::symlink_metadata(path).map_err(fault::on(path))?;
        Ok(self.stat_of(path, &about))
    }

    pub fn stat_of(&mut self, path: &Path, about: &Metadata) -> Stat {
        use std::os::unix::fs::MetadataExt;
        let target = about.is_symlink().then(|| fs::read_link(path).ok()).flatten();
        Stat {
            path: path.to_string_lossy().into_owned(),
            name: path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned()),
            kind: kind(about, "dir"),
            size: about.len(),
            mode: modes::to_text(about.mode()),
            owner: name(&mut self.users, about.uid(), users::user_name),
            group: name(&mut self.groups, about.gid(), users::group_name),
            uid: about.uid(),
            gid: about.gid(),
            modified_at: clock::rfc3339(about.modified().unwrap_or(SystemTime::UNIX_EPOCH)),
            target: target.map(|target| target.to_string_lossy().into_owned()),
        }
    }
}

/// Birth time, where the file system keeps one.
fn created(about: &Metadata) -> Option<SystemTime> {
    about.created().ok().filter(|&time| time > SystemTime::UNIX_EPOCH)
}

fn kind(about: &Metadata, directory: &'static str) -> &'static str {
    match about.file_type() {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => directory,
        kind if kind.is_symlink() => "symlink",
        _ => "other",
    }
}

fn name(known: &mut Vec<(u32, String)>, id: u32, look_up: fn(u32) -> String) -> String {
    if let Some((_, name)) = known.iter().find(|(known, _)| *known == id) {
        return name.clone();
    }
    let name = look_up(id);
    known.push((id, name.clone()));
    name
}
