//! Tells the recording which files the API changed.
//!
//! Called by every route that writes, moves or deletes. Invariant: under strict recording nothing is changed that cannot be recorded.

use std::path::Path;

use serde_json::{Map, Value};

use super::draft::Published;
use crate::agent::Agent;
use crate::error::Result;
use crate::record;

/// A change that is about to be made.
pub struct Change<'a> {
    agent: &'a Agent,
}

impl<'a> Change<'a> {
    /// # Errors
    /// 503 when it must be recorded and cannot be.
    pub fn begin(agent: &'a Agent) -> Result<Self> {
        if agent.recorder.refuses() {
            return Err(record::refusal());
        }
        Ok(Self { agent })
    }

    /// It was made to what is at `path`.
    pub fn done(self, action: &str, path: &Path) {
        self.note(action, path, Map::new());
    }

    pub fn moved(self, path: &Path, to: &Path) {
        self.note("move", path, Map::from_iter([("to".to_owned(), Value::from(to.to_string_lossy()))]));
    }

    pub fn wrote(self, path: &Path, published: &Published) {
        let mut fields = Map::from_iter([("size".to_owned(), Value::from(published.size))]);
        fields.extend(published.sha256.clone().map(|sum| ("sha256".to_owned(), Value::from(sum))));
        self.note("write", path, fields);
    }

    fn note(self, action: &str, path: &Path, more: Map<String, Value>) {
        if self.agent.recorder.commands() {
            let mut fields = Map::new();
            fields.insert("action".to_owned(), Value::from(action));
            fields.insert("path".to_owned(), Value::from(path.to_string_lossy()));
            fields.extend(more);
            self.agent.recorder.fact("file", fields);
        }
    }
}
