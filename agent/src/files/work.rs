//! Where the files' system calls are made: short ones at once, long ones on a thread that lives as long as they do.
//!
//! Called by every file route. Invariants: what runs here runs with the file-system identity asked for; the loop never waits for a
//! disk for long; no thread lives on while the agent idles; when the sandbox has no room for a thread the work is still done.

use std::thread;

use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, Result};
use crate::sys;
use crate::users::Identity;

const STACK_BYTES: usize = 256 << 10;
/// Pieces of a stream that may wait for a slow client.
const PIECES_AHEAD: usize = 2;

/// Runs short work at once.
pub fn brief<T>(identity: &Identity, work: impl FnOnce() -> Result<T>) -> Result<T> {
    sys::as_user(identity.uid, identity.gid, &identity.groups, work)
}

/// Runs work that may take long on a thread of its own, which is not stopped when the caller leaves.
pub async fn long<T: Send + 'static>(
    identity: &Identity,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (answer, coming) = oneshot::channel();
    let (uid, gid, groups) = (identity.uid, identity.gid, identity.groups.clone());
    begin(move || {
        // The caller may have left: then nobody wants the answer.
        let _unwanted = answer.send(sys::as_user(uid, gid, &groups, work));
    });
    coming.await.unwrap_or_else(|_| Err(unavailable()))
}

/// The pieces of a stream that `work` makes on a thread; an error ends it.
pub struct Pieces(mpsc::Receiver<Result<Vec<u8>>>);

impl Pieces {
    /// The next piece, `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        self.0.recv().await.transpose()
    }
}

/// Where a stream's maker puts its pieces, waiting while the client is slow.
pub struct Out(mpsc::Sender<Result<Vec<u8>>>);

impl Out {
    /// `false` when nobody reads any more.
    pub fn send(&self, piece: Vec<u8>) -> bool {
        piece.is_empty() || self.0.blocking_send(Ok(piece)).is_ok()
    }
}

/// Starts a stream.
///
/// # Errors
/// 503 when the sandbox has no room for a thread.
pub fn stream(identity: &Identity, work: impl FnOnce(&Out) -> Result<()> + Send + 'static) -> Result<Pieces> {
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    let (uid, gid, groups) = (identity.uid, identity.gid, identity.groups.clone());
    let job = move || {
        let out = Out(sender);
        if let Err(error) = sys::as_user(uid, gid, &groups, || work(&out)) {
            // Nobody reads any more: nobody to tell.
            let _gone = out.0.blocking_send(Err(error));
        }
    };
    thread_for(job).map_err(|_| unavailable())?;
    Ok(Pieces(receiver))
}

/// On a thread, or at once where there is no room for one.
fn begin(job: impl FnOnce() + Send + 'static) {
    let slot = std::sync::Arc::new(std::sync::Mutex::new(Some(job)));
    let taken = slot.clone();
    let take = |slot: &std::sync::Mutex<Option<_>>| slot.lock().ok().and_then(|mut slot| slot.take());
    let run = move || {
        if let Some(job) = take(&taken) {
            job();
        }
    };
    if thread_for(run).is_err() {
        if let Some(job) = take(&slot) {
            job();
        }
    }
}

fn thread_for(job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name("files".into()).stack_size(STACK_BYTES).spawn(job).map(drop)
}

fn unavailable() -> Error {
    let mut error =
        Error::new(503, "sandbox_exhausted", "RUNTIME_ERROR", "the sandbox has no room for the file operation");
    error.retryable = true;
    error.remedy("end processes in the sandbox, or give it more pids or memory, and try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(work: impl std::future::Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn a_stream_gives_its_pieces_and_then_its_error() {
        block_on(async {
            let mut pieces = stream(&Identity::root(), |out| {
                assert!(out.send(b"one".to_vec()) && out.send(b"two".to_vec()));
                Err(Error::invalid("broken"))
            })
            .unwrap();
            assert_eq!(pieces.next().await.unwrap().unwrap(), b"one");
            assert_eq!(pieces.next().await.unwrap().unwrap(), b"two");
            assert_eq!(pieces.next().await.unwrap_err().message, "broken");
            assert!(pieces.next().await.unwrap().is_none());
        });
    }

    #[test]
    fn a_stream_whose_reader_left_ends() {
        let (ended, wait) = std::sync::mpsc::channel();
        block_on(async {
            let pieces = stream(&Identity::root(), move |out| {
                while out.send(vec![0; 10]) {}
                ended.send(()).map_err(|_| Error::runtime("gone"))
            });
            drop(pieces);
        });
        wait.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
    }
}
