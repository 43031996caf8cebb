//! What an isolated session is asked to be. Pure.
//!
//! Read by the routes, passed on to the helper that enters the namespaces. Invariant: a checked spec names only absolute paths.

use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::error::{Error, Result};

const MAX_OVERLAYS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    Strict,
    Balanced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Rw,
    #[default]
    Overlay,
    Ro,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Workspace {
    pub path: String,
    #[serde(default)]
    pub mode: Mode,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Overlay {
    pub path: String,
    #[serde(default)]
    pub mode: Mode,
    #[serde(default)]
    pub persist: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bind {
    pub source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dest: Option<String>,
    #[serde(default)]
    pub readonly: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Passthrough {
    #[serde(default)]
    pub mode: Pass,
    #[serde(default)]
    pub keys: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    Allow,
    #[default]
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UidMode {
    Setpriv,
    Userns,
}

/// The body of a create, as it is echoed by the session's state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    pub workspace: Workspace,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<Overlay>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_writable: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<Bind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_net: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_passthrough: Option<Passthrough>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid_mode: Option<UidMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<u64>,
}

impl Spec {
    /// # Errors
    /// 400 that names the field.
    pub fn check(&self) -> Result<()> {
        absolute("workspace.path", &self.workspace.path)?;
        self.extra_writable.iter().try_for_each(|path| absolute("extra_writable", path))?;
        for bind in &self.binds {
            absolute("binds.source", &bind.source)?;
            bind.dest.as_deref().map_or(Ok(()), |dest| absolute("binds.dest", dest))?;
        }
        for overlay in &self.overlays {
            absolute("overlays.path", &overlay.path)?;
            if overlay.persist {
                return Err(Error::invalid(
                    "overlays.persist is not supported: changes of an overlay end with its session",
                ));
            }
        }
        if self.overlays.len() > MAX_OVERLAYS {
            return Err(Error::invalid(format!("at most {MAX_OVERLAYS} overlays")));
        }
        if self.gid.is_some() && self.uid.is_none() {
            return Err(Error::invalid("uid is required when gid is given"));
        }
        Ok(())
    }

    /// The part of an environment that goes along.
    pub fn pass(&self, env: Environment) -> Environment {
        let Some(pass) = &self.env_passthrough else { return env };
        let wanted = pass.mode == Pass::Allow;
        env.into_iter().filter(|(name, _)| pass.keys.contains(name) == wanted).collect()
    }
}

fn absolute(field: &str, path: &str) -> Result<()> {
    let path = Path::new(path);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if path.is_absolute() && plain && path.file_name().is_some() {
        return Ok(());
    }
    Err(Error::invalid(format!("{field} must be an absolute path below the root, without '..': {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> Spec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_least_spec_is_an_overlay() {
        let least = spec(r#"{"workspace": {"path": "/w"}}"#);
        assert_eq!(least.workspace.mode, Mode::Overlay);
        assert!(least.check().is_ok());
    }

    #[test]
    fn paths_that_could_mean_something_else_are_refused() {
        for path in ["w", "/", "/a/../b", ""] {
            let json = serde_json::json!({"workspace": {"path": path}}).to_string();
            assert_eq!(spec(&json).check().unwrap_err().status, 400, "{path}");
        }
    }

    #[test]
    fn variables_pass_by_list() {
        let env = || Environment::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())]);
        let names = |json| spec(json).pass(env()).into_keys().collect::<Vec<_>>();
        assert_eq!(names(r#"{"workspace":{"path":"/w"}}"#), ["A", "B"]);
        assert_eq!(names(r#"{"workspace":{"path":"/w"},"env_passthrough":{"mode":"allow","keys":["A"]}}"#), ["A"]);
        assert_eq!(names(r#"{"workspace":{"path":"/w"},"env_passthrough":{"keys":["A"]}}"#), ["B"]);
    }
}
