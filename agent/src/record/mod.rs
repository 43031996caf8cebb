//! The recording of what happens in this sandbox, written where nothing inside can reach it.
//!
//! One `Recorder` per agent, made at the claim from the descriptor named "recording". Commands, terminals and file
//! routes tell it what they do. It is off when no descriptor came or the mode is `off`.

mod chain;
mod redact;
mod writer;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{json, Map, Value};
use tokio::sync::{mpsc, Semaphore};

use crate::agent;
use crate::error::{Error, Result};
use redact::Redactor;
use writer::{Entry, Queued, Writer};

/// Bytes that may wait to be written before the program whose output they are has to wait too.
const QUEUE_BYTES: usize = 4 << 20;
/// What one piece of output may take of it.
const ROOM: u32 = 64 << 10;
const THREAD_STACK: usize = 64 * 1024;

/// What is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Off,
    Terminals,
    All,
}

/// The settings of the claim's `record` object.
pub struct Settings {
    pub mode: Mode,
    pub input: bool,
    pub strict: bool,
    pub secrets: Vec<Vec<u8>>,
}

/// Tells the writer's thread what happened; cheap when off.
pub struct Recorder {
    settings: Settings,
    queue: Option<mpsc::UnboundedSender<Queued>>,
    room: Arc<Semaphore>,
    failing: Arc<AtomicBool>,
    redactors: RefCell<HashMap<(Arc<str>, &'static str), Redactor>>,
}

impl Recorder {
    /// A recorder that keeps nothing.
    pub fn off() -> Recorder {
        let settings = Settings { mode: Mode::Off, input: false, strict: false, secrets: Vec::new() };
        Recorder::with(settings, None, Arc::default())
    }

    /// Record to `file` by `settings`. The thread starts now, before any program could use up the sandbox's tasks.
    pub fn new(file: File, settings: Settings) -> std::io::Result<Recorder> {
        if settings.mode == Mode::Off {
            return Ok(Recorder::off());
        }
        let failing = Arc::new(AtomicBool::new(false));
        let writer = Writer::new(file, settings.strict, Arc::clone(&failing));
        let (sender, receiver) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new().name("record".into()).stack_size(THREAD_STACK);
        thread.spawn(move || writer.run(receiver))?;
        Ok(Recorder::with(settings, Some(sender), failing))
    }

    fn with(settings: Settings, queue: Option<mpsc::UnboundedSender<Queued>>, failing: Arc<AtomicBool>) -> Recorder {
        Recorder {
            settings,
            queue,
            room: Arc::new(Semaphore::new(QUEUE_BYTES)),
            failing,
            redactors: RefCell::default(),
        }
    }

    /// Are commands and file changes recorded?
    pub fn commands(&self) -> bool {
        self.settings.mode == Mode::All
    }

    /// Are terminals recorded?
    pub fn terminals(&self) -> bool {
        self.settings.mode != Mode::Off
    }

    /// Is what is typed recorded?
    pub fn input(&self) -> bool {
        self.settings.input && self.terminals()
    }

    /// Must an operation be refused because it could not be recorded?
    pub fn refuses(&self) -> bool {
        self.settings.strict && self.failing.load(Ordering::Relaxed)
    }

    /// Record a fact, at once and in order.
    pub fn fact(&self, kind: &'static str, fields: Map<String, Value>) {
        if self.terminals() {
            let fields = if self.settings.secrets.is_empty() { fields } else { self.clean(fields) };
            self.send(Entry::Fact { at_us: now_us(), kind, fields }, None);
        }
    }

    /// Waits while too much is unwritten; whoever makes output asks before taking more.
    pub async fn room(&self) {
        if self.queue.is_some() {
            // The semaphore is never closed.
            let _room = self.room.acquire_many(ROOM).await;
        }
    }

    /// Returns once all that was recorded so far is written.
    pub async fn flush(&self) {
        let (done, written) = tokio::sync::oneshot::channel();
        self.send(Entry::Flush(done), None);
        // Without a writer the sender is dropped, which ends the wait as well.
        let _written = written.await;
    }

    /// Record a piece of a stream.
    pub fn data(&self, kind: &'static str, id: &Arc<str>, stream: Option<&'static str>, data: &[u8]) {
        if data.is_empty() || !self.terminals() {
            return;
        }
        let data = match self.settings.secrets.is_empty() {
            true => data.to_vec(),
            false => self.redact(id, stream.unwrap_or(kind), |redactor| redactor.pass(data)),
        };
        self.enqueue(kind, id, stream, data);
    }

    /// A stream ended: record what the redaction held back.
    pub fn end(&self, kind: &'static str, id: &Arc<str>, stream: Option<&'static str>) {
        if self.settings.secrets.is_empty() || !self.terminals() {
            return;
        }
        let data = self.redact(id, stream.unwrap_or(kind), Redactor::finish);
        self.redactors.borrow_mut().remove(&(Arc::clone(id), stream.unwrap_or(kind)));
        self.enqueue(kind, id, stream, data);
    }

    fn enqueue(&self, kind: &'static str, id: &Arc<str>, stream: Option<&'static str>, data: Vec<u8>) {
        if !data.is_empty() {
            let taken = u32::try_from(data.len()).unwrap_or(ROOM);
            let permit = Arc::clone(&self.room).try_acquire_many_owned(taken).ok();
            self.send(Entry::Data { at_us: now_us(), kind, id: Arc::clone(id), stream, data }, permit);
        }
    }

    fn redact(&self, id: &Arc<str>, stream: &'static str, with: impl FnOnce(&mut Redactor) -> Vec<u8>) -> Vec<u8> {
        let mut redactors = self.redactors.borrow_mut();
        let key = (Arc::clone(id), stream);
        let redactor = redactors.entry(key).or_insert_with(|| Redactor::new(&self.settings.secrets));
        with(redactor)
    }

    fn clean(&self, fields: Map<String, Value>) -> Map<String, Value> {
        fields.into_iter().map(|(name, value)| (name, self.clean_value(value))).collect()
    }

    fn clean_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => {
                let mut redactor = Redactor::new(&self.settings.secrets);
                let mut clean = redactor.pass(text.as_bytes());
                clean.extend(redactor.finish());
                Value::String(String::from_utf8_lossy(&clean).into_owned())
            }
            Value::Array(items) => items.into_iter().map(|item| self.clean_value(item)).collect(),
            other => other,
        }
    }

    fn send(&self, entry: Entry, permit: Option<tokio::sync::OwnedSemaphorePermit>) {
        if let Some(queue) = &self.queue {
            let _ = queue.send((entry, permit));
        }
    }
}

/// The recorder that the claim's settings ask for, over the descriptor that came with it; its first record.
///
/// # Errors
/// When the recording must be strict and there is no descriptor, or no thread could be started.
pub fn begin(settings: &agent::Settings, file: Option<OwnedFd>) -> Result<Recorder> {
    let mode = match settings.record.mode.as_str() {
        "all" => Mode::All,
        "terminals" => Mode::Terminals,
        _ => return Ok(Recorder::off()),
    };
    let Some(file) = file else {
        return if settings.record.strict { Err(refusal()) } else { Ok(Recorder::off()) };
    };
    let secrets = settings.record.secrets.iter().map(|secret| secret.clone().into_bytes()).collect();
    let wanted = Settings { mode, input: settings.record.input, strict: settings.record.strict, secrets };
    let recorder = Recorder::new(File::from(file), wanted)?;
    recorder.fact(
        "open",
        Map::from_iter([
            ("sandbox".to_owned(), json!(settings.id)),
            ("format".to_owned(), json!(1)),
            ("mode".to_owned(), json!(settings.record.mode)),
        ]),
    );
    Ok(recorder)
}

/// Why an operation is refused when it could not be recorded and must be.
pub fn refusal() -> Error {
    Error::new(
        503,
        "recording_unavailable",
        "RUNTIME_ERROR",
        "the recording cannot be written, and this sandbox does nothing unrecorded",
    )
    .remedy("free space for recordings on the host")
}

/// The members of a JSON object, as a fact takes them.
pub fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Now, Unix microseconds.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn scratch() -> (File, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("record-{}-{}", std::process::id(), now_us()));
        let file = std::fs::OpenOptions::new().append(true).create(true).open(&path).expect("file");
        (file, path)
    }

    fn lines(path: &std::path::Path, wanted: usize) -> Vec<Value> {
        for _ in 0..3000 {
            let mut text = String::new();
            File::open(path).and_then(|mut file| file.read_to_string(&mut text)).expect("read");
            if text.lines().count() >= wanted {
                let _ = std::fs::remove_file(path);
                return text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{wanted} records were never written");
    }

    fn settings(mode: Mode, secrets: &[&str]) -> Settings {
        let secrets = secrets.iter().map(|secret| secret.as_bytes().to_vec()).collect();
        Settings { mode, input: false, strict: false, secrets }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn records_are_written_in_order_and_without_secrets() {
        let (file, path) = scratch();
        let recorder = Recorder::new(file, settings(Mode::All, &["hunter2"])).expect("recorder");
        let id: Arc<str> = "p1".into();
        let command = Map::from_iter([("command".to_owned(), json!(["login", "hunter2"]))]);
        recorder.fact("cmd.start", command);
        recorder.data("cmd.out", &id, Some("stdout"), b"pass hunt");
        recorder.data("cmd.out", &id, Some("stdout"), b"er2 end");
        recorder.end("cmd.out", &id, Some("stdout"));
        recorder.fact("cmd.exit", Map::new());
        drop(recorder);
        let written = lines(&path, 3);
        assert_eq!(written[0]["command"], json!(["login", "[redacted]"]));
        let output: String = written
            .iter()
            .filter(|line| line["kind"] == "cmd.out")
            .map(|line| line["data"].as_str().unwrap_or(""))
            .collect();
        assert_eq!(output, "pass [redacted] end");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_full_disk_becomes_a_gap() {
        let full = std::fs::OpenOptions::new().append(true).open("/dev/full").expect("/dev/full");
        let recorder = Recorder::new(full, settings(Mode::All, &[])).expect("recorder");
        recorder.fact("life", Map::new());
        for _ in 0..3000 {
            if recorder.failing.load(Ordering::Relaxed) {
                assert!(!recorder.refuses());
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("the failure was never noticed");
    }
}
