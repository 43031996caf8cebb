//! Walks a directory tree in lexical order, each directory before what is in it.
//!
//! Called by listing, searching, archiving and copying, on a worker thread. Invariant: links are visited, never entered; memory is the
//! names of the directories on the way down.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

/// Visits everything below `root` down to `depth` levels; the visitor ends the walk with `false`. What cannot be read is left out.
pub fn walk(root: &Path, depth: usize, visit: &mut dyn FnMut(&Path, &Metadata) -> bool) {
    let mut open: Vec<Level> = Vec::new();
    if depth > 0 {
        open.push(Level::read(root.to_owned()));
    }
    while let Some(level) = open.last_mut() {
        let Some(name) = level.names.next() else {
            open.pop();
            continue;
        };
        let path = level.directory.join(name);
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if !visit(&path, &about) {
            return;
        }
        if about.is_dir() && open.len() < depth {
            open.push(Level::read(path));
        }
    }
}

struct Level {
    directory: PathBuf,
    names: std::vec::IntoIter<OsString>,
}

impl Level {
    fn read(directory: PathBuf) -> Self {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        Self { directory, names: names.into_iter() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_follow_their_parent_and_links_are_not_entered() {
        let root = std::env::temp_dir().join(format!("talon-walk-{}", std::process::id()));
        for directory in ["b/deep/er", "a"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("b/file"), "x").unwrap();
        std::os::unix::fs::symlink(&root, root.join("b/loop")).unwrap();
        let names = |depth| {
            let mut names = Vec::new();
            walk(&root, depth, &mut |path, _| {
                names.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                true
            });
            names
        };
        assert!(names(0).is_empty());
        assert_eq!(names(1), ["a", "b"]);
        assert_eq!(names(2), ["a", "b", "b/deep", "b/file", "b/loop"]);
        assert_eq!(names(usize::MAX).len(), 6);
        fs::remove_dir_all(&root).unwrap();
    }
}
