//! The changes of an overlay as a tar, as container layers write them: `.wh.NAME` for what was removed, `.wh..wh..opq` in a directory that
//! hides all that was in it before.
//!
//! Called for isolated sessions: `stream` by the agent inside, `prepare` by the outer one when the changes are committed. Invariant: nothing
//! outside the directory is removed.

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tar::{Builder, EntryType, Header};

use super::archive::{refused, write_entry, Pieces};
use super::{download, edit, fault, walk, work};
use crate::error::Result;
use crate::http::Response;
use crate::sys_isolate;
use crate::users::Identity;

const OPAQUE: &str = ".wh..wh..opq";
const REMOVED: &str = ".wh.";

/// A tar of the overlay's upper directory `root`.
pub fn stream(root: &Path) -> Result<Response> {
    let root = root.to_owned();
    let pieces = work::stream(&Identity::root(), move |out| {
        let mut builder = Builder::new(Pieces { out, held: Vec::new() });
        write(&mut builder, &root).and_then(|()| builder.into_inner()?.flush()).map_err(fault::on(&root))
    })?;
    Ok(download::streamed(200, "application/x-tar", pieces))
}

fn write(builder: &mut Builder<Pieces<'_>>, root: &Path) -> io::Result<()> {
    let mut result = Ok(());
    walk::walk(root, usize::MAX, &mut |path, about| {
        let name = path.strip_prefix(root).unwrap_or(path);
        result = write_change(builder, path, name, about);
        result.is_ok()
    });
    result
}

fn write_change(builder: &mut Builder<Pieces<'_>>, path: &Path, name: &Path, about: &Metadata) -> io::Result<()> {
    let is_whiteout = about.rdev() == 0 && about.mode() & libc::S_IFMT == libc::S_IFCHR;
    if is_whiteout {
        let base = name.file_name().unwrap_or_default().to_string_lossy();
        return write_mark(builder, &name.with_file_name(format!("{REMOVED}{base}")));
    }
    write_entry(builder, path, name, about)?;
    if about.is_dir() && sys_isolate::is_marked(path, c"user.overlay.opaque") {
        return write_mark(builder, &name.join(OPAQUE));
    }
    Ok(())
}

fn write_mark(builder: &mut Builder<Pieces<'_>>, name: &Path) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(0);
    header.set_mode(0o600);
    builder.append_data(&mut header, name, io::empty())
}

/// Makes room for an entry; `true` when it was only a mark, and nothing is to be unpacked.
pub fn prepare(root: &Path, name: &Path, is_directory: bool) -> Result<bool> {
    let base = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = root.join(name.parent().unwrap_or(Path::new("")));
    if base == OPAQUE {
        within(root, &parent)?;
        for entry in fs::read_dir(&parent).map_err(fault::on(&parent))?.flatten() {
            edit::delete_tree(&entry.path())?;
        }
        return Ok(true);
    }
    if let Some(removed) = base.strip_prefix(REMOVED) {
        within(root, &parent)?;
        edit::delete_tree(&parent.join(removed))?;
        return Ok(true);
    }
    let target = root.join(name);
    let was_directory = fs::symlink_metadata(&target).map(|about| about.is_dir());
    if was_directory.is_ok_and(|was| was != is_directory) {
        within(root, &parent)?;
        edit::delete_tree(&target)?;
    }
    Ok(false)
}

fn within(root: &Path, directory: &Path) -> Result<()> {
    let (root, directory) =
        (root.canonicalize().map_err(fault::on(root))?, directory.canonicalize().map_err(fault::on(directory))?);
    if directory.starts_with(&root) {
        return Ok(());
    }
    Err(refused(&format!("'{}' is outside of the directory", directory.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_remove_and_types_may_change() {
        let root = std::env::temp_dir().join(format!("talon-changes-{}", std::process::id()));
        fs::create_dir_all(root.join("d/sub")).unwrap();
        fs::write(root.join("d/old"), "x").unwrap();
        fs::write(root.join("gone"), "x").unwrap();
        std::os::unix::fs::symlink("/", root.join("out")).unwrap();
        assert!(prepare(&root, Path::new(".wh.gone"), false).unwrap());
        assert!(prepare(&root, Path::new("d/.wh..wh..opq"), false).unwrap());
        assert!(fs::read_dir(root.join("d")).unwrap().next().is_none() && !root.join("gone").exists());
        assert!(prepare(&root, Path::new("out/.wh.etc"), false).is_err());
        assert!(!prepare(&root, Path::new("d"), false).unwrap());
        assert!(!root.join("d").exists());
        fs::remove_dir_all(&root).unwrap();
    }
}
