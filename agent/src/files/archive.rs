//! Directories as tar streams, down and up.
//!
//! Called by the native routes. Invariants: memory is a few pieces however large the tree is; an archive writes nothing outside the
//! directory it is unpacked into, and makes no devices; what it makes belongs to the user it is unpacked as.

use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::path::Path;

use tar::{Archive, Builder, EntryType, Header};
use tokio::sync::{mpsc, oneshot};

use super::work::{self, Out};
use super::{changes, download, edit, fault, walk};
use crate::error::{Error, Result};
use crate::http::{RequestBody, Response};
use crate::users::Identity;

const PIECE_BYTES: usize = 256 << 10;
const CHUNKS_AHEAD: usize = 4;

/// A tar of what is below `path`, or of the one file; names are relative to it.
pub fn pack(identity: &Identity, path: &Path) -> Result<Response> {
    work::brief(identity, || fs::metadata(path).map_err(fault::on(path)))?;
    let root = path.to_owned();
    let pieces = work::stream(identity, move |out| {
        let mut builder = Builder::new(Pieces { out, held: Vec::new() });
        write_tree(&mut builder, &root).and_then(|()| builder.into_inner()?.flush()).map_err(fault::on(&root))
    })?;
    let name = path.file_name().map_or_else(|| "root".into(), |name| name.to_string_lossy()).replace(['"', '\\'], "_");
    Ok(download::streamed(200, "application/x-tar", pieces)
        .header("Content-Disposition", format!("attachment; filename=\"{name}.tar\"")))
}

fn write_tree(builder: &mut Builder<Pieces<'_>>, root: &Path) -> io::Result<()> {
    let about = fs::metadata(root)?;
    if !about.is_dir() {
        return write_entry(builder, root, Path::new(root.file_name().unwrap_or_default()), &about);
    }
    let mut result = Ok(());
    walk::walk(root, usize::MAX, &mut |path, about| {
        let name = path.strip_prefix(root).unwrap_or(path);
        result = write_entry(builder, path, name, about);
        result.is_ok()
    });
    result
}

/// What cannot be read, and special files, are left out.
pub fn write_entry(builder: &mut Builder<Pieces<'_>>, path: &Path, name: &Path, about: &Metadata) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_metadata(about);
    if about.is_dir() {
        return builder.append_data(&mut header, name.join(""), io::empty());
    }
    if about.is_symlink() {
        let Ok(target) = fs::read_link(path) else { return Ok(()) };
        header.set_size(0);
        return builder.append_link(&mut header, name, target);
    }
    let Ok((file, about)) = download::open_regular(path) else { return Ok(()) };
    header.set_metadata(&about);
    // A file that shrinks meanwhile is filled up, so that the next header is where it must be.
    builder.append_data(&mut header, name, file.chain(io::repeat(0)).take(about.len()))
}

/// Collects small writes into the stream's pieces.
pub struct Pieces<'a> {
    pub out: &'a Out,
    pub held: Vec<u8>,
}

impl Write for Pieces<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(data);
        if self.held.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.out.send(std::mem::take(&mut self.held)) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
}

#[derive(Default)]
pub struct Unpacked {
    pub entries: u64,
    pub bytes: u64,
}

/// Unpacks a tar body into `path`, which is made when missing.
///
/// # Errors
/// 400 for what is no tar, and for an entry that would leave the directory; what came before it stays.
pub async fn unpack(identity: &Identity, path: &Path, body: &mut RequestBody) -> Result<Unpacked> {
    let unpacking = Unpacking::begin(identity, path, false)?;
    while let Some(chunk) = body.chunk().await? {
        if !unpacking.feed(chunk).await {
            break;
        }
    }
    unpacking.finish().await
}

/// A tar that is unpacked as its bytes come.
pub struct Unpacking {
    sender: mpsc::Sender<Vec<u8>>,
    coming: oneshot::Receiver<Result<Unpacked>>,
    _worker: work::Pieces,
}

impl Unpacking {
    /// With `changes`, entries named `.wh.…` remove what they name, and owners are kept: see `changes`.
    pub fn begin(identity: &Identity, path: &Path, changes: bool) -> Result<Self> {
        let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
        let (answer, coming) = oneshot::channel();
        let root = path.to_owned();
        let worker = work::stream(identity, move |_| {
            let chunks = Chunks { receiver, current: Vec::new(), at: 0 };
            // The caller may have left: then nobody wants the answer.
            let _unwanted = answer.send(read_archive(&root, chunks, changes));
            Ok(())
        })?;
        Ok(Self { sender, coming, _worker: worker })
    }

    /// `false` when no more is wanted, because it failed.
    pub async fn feed(&self, chunk: Vec<u8>) -> bool {
        self.sender.send(chunk).await.is_ok()
    }

    pub async fn finish(self) -> Result<Unpacked> {
        drop(self.sender);
        self.coming.await.map_err(|_| Error::runtime("the archive's reader ended"))?
    }
}

fn read_archive(root: &Path, chunks: Chunks, changes: bool) -> Result<Unpacked> {
    edit::make_directory(root, &super::draft::Attributes::default())?;
    let mut archive = Archive::new(chunks);
    archive.set_preserve_permissions(changes);
    archive.set_preserve_ownerships(changes);
    archive.set_unpack_xattrs(false);
    archive.set_overwrite(true);
    let mut unpacked = Unpacked::default();
    for entry in archive.entries().map_err(|error| refused(&error.to_string()))? {
        let mut entry = entry.map_err(|error| refused(&error.to_string()))?;
        let name = entry.path().map_err(|error| refused(&error.to_string()))?.into_owned();
        refuse_special(entry.header().entry_type(), &name)?;
        if changes && changes::prepare(root, &name, entry.header().entry_type().is_dir())? {
            unpacked.entries += 1;
            continue;
        }
        let inside = entry.unpack_in(root).map_err(|error| failed(&name, &error))?;
        if !inside {
            return Err(refused(&format!("'{}' would be outside of the directory", name.display())));
        }
        unpacked.entries += 1;
        unpacked.bytes += entry.size();
    }
    // Padding behind the end, so that the client can finish sending.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(|error| refused(&error.to_string()))?;
    Ok(unpacked)
}

fn refuse_special(kind: EntryType, name: &Path) -> Result<()> {
    if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() {
        return Err(refused(&format!("'{}' is a device or FIFO", name.display())));
    }
    Ok(())
}

fn failed(name: &Path, error: &io::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        let os = inner.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if let Some(code) = os {
            return fault::on(name)(io::Error::from_raw_os_error(code));
        }
        cause = inner.source();
    }
    refused(&format!("'{}': {error}", name.display()))
}

pub fn refused(why: &str) -> Error {
    Error::new(400, "invalid_archive", "INVALID_FILE", format!("the archive cannot be unpacked: {why}"))
        .remedy("send an uncompressed tar with relative names below the directory, of files, directories and links")
}

/// The request's body for a thread.
struct Chunks {
    receiver: mpsc::Receiver<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.current.len() {
            let Some(next) = self.receiver.blocking_recv() else { return Ok(0) };
            (self.current, self.at) = (next, 0);
        }
        let count = buffer.len().min(self.current.len() - self.at);
        buffer[..count].copy_from_slice(&self.current[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
