//! Terminals: `/pty` of the OpenSandbox protocol and `/v2/terminals`, over the same `Terminal`s.
//!
//! Called by `router`. A terminal belongs to the sandbox: clients come and go, the server may restart, it stays.
//! Invariant: what was created stays listed until it is deleted, ended or not, at most `MAX_TERMINALS`.

mod client;
mod execd;
mod frames;
mod native;
mod scrollback;
pub mod signals;
mod terminal;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use terminal::Terminal;

pub use execd::handle as execd;
pub use native::handle as native;

use crate::error::{Error, Result};
use crate::http::{Request, Response};

/// Terminals of one sandbox at once, ended ones that nobody deleted included.
const MAX_TERMINALS: usize = 512;

/// One entry of the table: what `/pty` made starts its program with the first client.
pub enum Entry {
    Waiting(execd::Order),
    Started(Rc<Terminal>),
}

/// All terminals of the sandbox by id.
#[derive(Default)]
pub struct Terminals(RefCell<BTreeMap<String, Entry>>);

impl Terminals {
    /// Add one; the oldest that has ended makes room.
    ///
    /// # Errors
    /// 429 when too many are alive.
    fn add(&self, id: String, entry: Entry) -> Result<()> {
        let mut all = self.0.borrow_mut();
        if all.len() >= MAX_TERMINALS {
            let ended = all.iter().filter(|(_, entry)| matches!(entry, Entry::Started(one) if one.outcome().is_some()));
            let oldest = ended.min_by_key(|(_, entry)| entry.started()).map(|(id, _)| id.clone());
            let oldest = oldest.ok_or_else(|| {
                Error::new(429, "too_many_terminals", "RUNTIME_ERROR", format!("{MAX_TERMINALS} terminals are open"))
                    .remedy("delete some that are no longer needed")
            })?;
            all.remove(&oldest);
        }
        all.insert(id, entry);
        Ok(())
    }

    fn get(&self, id: &str) -> Result<Rc<Terminal>> {
        match self.0.borrow().get(id) {
            Some(Entry::Started(terminal)) => Ok(terminal.clone()),
            _ => Err(unknown(id)),
        }
    }

    fn remove(&self, id: &str) -> Result<Entry> {
        self.0.borrow_mut().remove(id).ok_or_else(|| unknown(id))
    }

    fn all(&self) -> Vec<Rc<Terminal>> {
        let all = self.0.borrow();
        let started = all.values().filter_map(|entry| match entry {
            Entry::Started(terminal) => Some(terminal.clone()),
            Entry::Waiting(_) => None,
        });
        started.collect()
    }
}

impl Entry {
    fn started(&self) -> Option<std::time::SystemTime> {
        match self {
            Entry::Started(terminal) => Some(terminal.started_at),
            Entry::Waiting(_) => None,
        }
    }
}

fn unknown(id: &str) -> Error {
    Error::new(404, "terminal_not_found", "CONTEXT_NOT_FOUND", format!("no terminal '{id}' in this sandbox"))
        .remedy("list the terminals, or create one")
}

/// The 101 that makes the connection a WebSocket served by `client`.
fn attach(request: &Request, terminal: Rc<Terminal>, default_viewer: bool) -> Result<Response> {
    let key = request.headers.get("sec-websocket-key").filter(|_| request.wants_upgrade());
    let key = key.ok_or_else(|| {
        Error::new(426, "upgrade_required", "INVALID_REQUEST_BODY", "this route is a WebSocket")
            .remedy("connect with a WebSocket client")
    })?;
    let viewer = match request.query.get("mode").or_else(|| request.query.get("role")) {
        Some(mode) => mode == "viewer",
        None => default_viewer,
    };
    let since = request.query.number("since")?.unwrap_or(0);
    let holding = if viewer { None } else { Some(terminal.hold(request.query.flag("takeover"))?) };
    let visit = client::Visit { holding, since };
    let headers = vec![
        ("Upgrade".to_owned(), "websocket".to_owned()),
        ("Connection".to_owned(), "Upgrade".to_owned()),
        ("Sec-WebSocket-Accept".to_owned(), frames::accept(key)),
    ];
    Ok(Response::upgrade(headers, move |io| client::serve(terminal, visit, io)))
}
