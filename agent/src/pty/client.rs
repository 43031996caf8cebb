//! One client at a terminal, over a WebSocket: replays what it missed, then carries output, input and sizes.
//!
//! Frames are those of the OpenSandbox PTY protocol. Server to client, binary: `01` output, `02` standard error (pipes),
//! `03` + offset (8 bytes, big endian) replayed output; text: connected, error, pong, exit. Client to server, binary:
//! `00` input; text: resize, signal, stdin, ping. Viewers get all output as `03`.

use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::frames::{self, Message, Parser, Violation};
use super::signals;
use super::terminal::Terminal;
use crate::error::Error;
use crate::http::Upgraded;

const CHUNK: usize = 32 << 10;
const PING_EVERY: Duration = Duration::from_secs(30);
const MAX_REFUSALS: u32 = 5;
const TAKEN_OVER: u16 = 4001;
const READ_ONLY: u16 = 4003;

/// How a client comes to a terminal.
pub struct Visit {
    /// Number of its holding; `None` looks on.
    pub holding: Option<u64>,
    /// First byte it wants.
    pub since: u64,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Control {
    Resize { cols: u16, rows: u16 },
    Signal { signal: String },
    Stdin { data: String },
    Ping,
}

/// Lets go of the terminal whatever way the connection ends.
struct Present {
    terminal: Rc<Terminal>,
    holding: Option<u64>,
}

impl Present {
    fn enter(terminal: &Rc<Terminal>, holding: Option<u64>) -> Present {
        terminal.clients.set(terminal.clients.get() + 1);
        Present { terminal: terminal.clone(), holding }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.terminal.clients.set(self.terminal.clients.get() - 1);
        if let Some(holding) = self.holding {
            self.terminal.let_go(holding);
        }
    }
}

/// Serve the client until it leaves, the program ends or another takes over.
pub async fn serve(terminal: Rc<Terminal>, visit: Visit, io: Upgraded) {
    let _present = Present::enter(&terminal, visit.holding);
    let (cols, rows) = terminal.size();
    let connected = json!({
        "type": "connected",
        "session_id": &*terminal.id,
        "mode": if terminal.pty { "pty" } else { "pipe" },
        "role": if visit.holding.is_some() { "holder" } else { "viewer" },
        "cols": cols,
        "rows": rows,
    });
    if io.write(&frames::text(&connected.to_string())).await.is_err() {
        return;
    }
    let farewell = tokio::select! {
        farewell = show(&terminal, &visit, &io) => farewell,
        farewell = listen(&terminal, &visit, &io) => farewell,
    };
    if let Some((code, reason)) = farewell {
        // The client may be gone already.
        let _gone = io.write(&frames::close(code, reason)).await;
    }
}

type Farewell = Option<(u16, &'static str)>;

async fn show(terminal: &Terminal, visit: &Visit, io: &Upgraded) -> Farewell {
    let replay_until = terminal.output.borrow().end();
    let mut at = visit.since;
    loop {
        let changed = terminal.changed.notified();
        if visit.holding.is_some_and(|holding| !terminal.holds(holding)) {
            return Some((TAKEN_OVER, "TAKEN_OVER"));
        }
        let (from, data, error) = terminal.read(at, CHUNK);
        if !data.is_empty() {
            let replayed = visit.holding.is_none() || from < replay_until || from != at;
            let frame = if replayed { replay(from, &data) } else { live(&data, error) };
            if io.write(&frame).await.is_err() {
                return None;
            }
            at = from + data.len() as u64;
            if visit.holding.is_some() {
                terminal.take(at);
            }
        } else if let Some(end) = terminal.outcome() {
            let exit = json!({"type": "exit", "exit_code": end.status.code()});
            return io.write(&frames::text(&exit.to_string())).await.ok().map(|()| (1000, "exit"));
        } else if tokio::time::timeout(PING_EVERY, changed).await.is_err() && io.write(&frames::ping()).await.is_err() {
            return None;
        }
    }
}

fn replay(offset: u64, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(data.len() + 9);
    body.push(3);
    body.extend_from_slice(&offset.to_be_bytes());
    body.extend_from_slice(data);
    frames::binary(&body)
}

fn live(data: &[u8], error: bool) -> Vec<u8> {
    let mut body = Vec::with_capacity(data.len() + 1);
    body.push(if error { 2 } else { 1 });
    body.extend_from_slice(data);
    frames::binary(&body)
}

async fn listen(terminal: &Terminal, visit: &Visit, io: &Upgraded) -> Farewell {
    let mut parser = Parser::default();
    let mut refusals = 0;
    loop {
        let data = io.read().await.ok()?;
        if data.is_empty() {
            return None;
        }
        parser.feed(&data);
        loop {
            let refused = match parser.next() {
                Ok(None) => break,
                Err(Violation(code)) => return Some((code, "protocol error")),
                Ok(Some(Message::Close)) => return Some((1000, "")),
                Ok(Some(Message::Pong)) => continue,
                Ok(Some(Message::Ping(data))) => io.write(&frames::pong(&data)).await.ok().map(|()| Ok(()))?,
                Ok(Some(message)) => obey(terminal, visit, io, message).await,
            };
            if let Err(error) = refused {
                let told = json!({"type": "error", "code": error.execd_code, "message": error.to_string()});
                io.write(&frames::text(&told.to_string())).await.ok()?;
                refusals += u32::from(error.execd_code == "READ_ONLY");
                if refusals >= MAX_REFUSALS {
                    return Some((READ_ONLY, "READ_ONLY"));
                }
            }
        }
    }
}

async fn obey(terminal: &Terminal, visit: &Visit, io: &Upgraded, message: Message) -> Result<(), Error> {
    let control = match message {
        Message::Binary(data) => {
            writable(visit)?;
            return match data.split_first() {
                Some((0, input)) => terminal.write(input).await,
                _ => Err(Error::invalid("a binary frame begins with 00 and carries input")),
            };
        }
        Message::Text(text) => serde_json::from_str(&text)?,
        _ => return Ok(()),
    };
    match control {
        Control::Ping => Ok(io.write(&frames::text("{\"type\":\"pong\"}")).await?),
        Control::Resize { cols, rows } => writable(visit).and_then(|()| terminal.resize(cols, rows)),
        Control::Signal { signal } => writable(visit).and_then(|()| terminal.signal(signals::number(&signal)?)),
        Control::Stdin { data } => {
            writable(visit)?;
            terminal.write(data.as_bytes()).await
        }
    }
}

fn writable(visit: &Visit) -> Result<(), Error> {
    match visit.holding {
        Some(_) => Ok(()),
        None => Err(Error::new(403, "terminal_read_only", "READ_ONLY", "a viewer cannot type")),
    }
}
