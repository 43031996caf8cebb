//! Paths as requests give them: absolute, relative to the working directory, or `~` for the user's home.
//!
//! Called by every file route. Invariant: the result is absolute and free of `.` and empty parts; `..` stays, for the kernel to walk.

use std::path::{Component, Path, PathBuf};

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::users::Identity;

/// # Errors
/// 400 when it is empty or has a NUL byte.
pub fn resolve(agent: &Agent, identity: &Identity, path: &str) -> Result<PathBuf> {
    absolute(&agent.workdir(), &identity.home, path)
}

fn absolute(workdir: &str, home: &str, path: &str) -> Result<PathBuf> {
    if path.is_empty() || path.contains('\0') {
        return Err(Error::invalid("the path is empty or has a NUL byte")
            .remedy("give an absolute path, or one relative to the working directory"));
    }
    let below_home = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let joined = match below_home {
        Some(rest) => Path::new(home).join(rest.trim_start_matches('/')),
        None => Path::new(workdir).join(path),
    };
    Ok(joined.components().filter(|part| *part != Component::CurDir).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_becomes_absolute() {
        for (path, expected) in [
            ("/a//b/./c/", "/a/b/c"),
            ("x/../y", "/work/x/../y"),
            (".", "/work"),
            ("~", "/home/me"),
            ("~/f", "/home/me/f"),
            ("~other/f", "/work/~other/f"),
            ("/", "/"),
        ] {
            assert_eq!(absolute("/work", "/home/me", path).unwrap(), Path::new(expected), "{path}");
        }
        assert!(absolute("/work", "/", "").is_err());
        assert!(absolute("/work", "/", "a\0b").is_err());
    }
}
