//! Carries one output pipe of a process into its log, as events come, never faster than a foreground reader takes it.
//!
//! Started by `process`, one task per pipe. Invariant: it goes on after the process has ended while a descendant holds the pipe, so
//! that a background child never gets SIGPIPE from us.

use std::fs::File;
use std::io::{self, Read};
use std::rc::Rc;

use tokio::io::unix::AsyncFd;

use super::process::Process;
use super::spool::Stream;
use crate::sys;

const READ_BYTES: usize = 64 << 10;

/// One pipe being carried; shared by the task and the final drain.
pub struct Pump {
    pipe: AsyncFd<File>,
    stream: Stream,
}

impl Pump {
    pub fn new(pipe: File, stream: Stream) -> io::Result<Rc<Self>> {
        Ok(Rc::new(Self { pipe: sys::watch(pipe)?, stream }))
    }

    /// Until the last holder of the pipe's other end closes it.
    pub async fn run(self: Rc<Self>, process: Rc<Process>) {
        loop {
            process.room_for_output().await;
            process.recorder.room().await;
            let Ok(mut guard) = self.pipe.readable().await else { return };
            match guard.try_io(|pipe| read_once(pipe.get_ref(), READ_BYTES)) {
                Ok(Ok(data)) if data.is_empty() => return,
                Ok(Ok(data)) => process.note_output(self.stream, &data),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(_)) => return,
                Err(_would_block) => {}
            }
        }
    }

    /// Takes what the ended process has left in the pipe: exactly the bytes there now, as a descendant may go on writing.
    pub fn drain(&self, process: &Process) {
        let mut left = sys::bytes_waiting(self.pipe.get_ref());
        while left > 0 {
            match read_once(self.pipe.get_ref(), left.min(READ_BYTES)) {
                Ok(data) if data.is_empty() => return,
                Ok(data) => {
                    left -= data.len();
                    process.note_output(self.stream, &data);
                }
                Err(_) => return,
            }
        }
    }
}

fn read_once(mut pipe: &File, limit: usize) -> io::Result<Vec<u8>> {
    let mut data = Vec::with_capacity(sys::bytes_waiting(pipe).clamp(1, limit));
    data.resize(data.capacity().min(limit), 0);
    let count = pipe.read(&mut data)?;
    data.truncate(count);
    Ok(data)
}
