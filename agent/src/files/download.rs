//! Reads files out: whole, a range of bytes, or a window of lines.
//!
//! Called by both dialects. Invariants: only regular files are read; memory is a few pieces however large the file is; a file that
//! shrinks meanwhile breaks the answer off instead of ending it early.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use memchr::memchr;
use serde_json::json;

use super::fault;
use super::range::{wanted, Wanted};
use super::work::{self, Out, Pieces};
use crate::error::{Error, Result};
use crate::http::Response;
use crate::sys_paths;
use crate::users::Identity;

const PIECE_BYTES: usize = 256 << 10;
/// Files of the kernel say they are empty; more than this is not read of one.
const MAX_UNSIZED_BYTES: u64 = 4 << 20;

/// Opens a file for reading, if it is a regular one.
pub fn open_regular(path: &Path) -> Result<(File, Metadata)> {
    let file = sys_paths::open(path, libc::O_RDONLY, 0).map_err(fault::on(path))?;
    let about = file.metadata().map_err(fault::on(path))?;
    if about.is_dir() {
        return Err(fault::on(path)(io::Error::from_raw_os_error(libc::EISDIR)));
    }
    if about.is_file() {
        Ok((file, about))
    } else {
        Err(fault::not_regular(path))
    }
}

/// The file's bytes, or those the `Range` header asks for.
pub fn bytes(identity: &Identity, path: &Path, range: Option<&str>) -> Result<Response> {
    let (file, about) = work::brief(identity, || open_regular(path))?;
    let size = about.len();
    let response = match wanted(range, size) {
        Wanted::Unsatisfiable => return Ok(unsatisfiable(size)),
        Wanted::All if size == 0 => Response::bytes(200, "application/octet-stream", unsized_content(&file, path)?),
        Wanted::All => part(identity, file, path, 0, size, 200)?,
        Wanted::Part { start, length } => part(identity, file, path, start, length, 206)?
            .header("Content-Range", format!("bytes {start}-{}/{size}", start + length - 1)),
    };
    Ok(response.header("Accept-Ranges", "bytes").header("Content-Disposition", disposition(path)))
}

fn unsized_content(file: &File, path: &Path) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(MAX_UNSIZED_BYTES).read_to_end(&mut content).map_err(fault::on(path))?;
    Ok(content)
}

fn part(identity: &Identity, file: File, path: &Path, start: u64, length: u64, status: u16) -> Result<Response> {
    let kind = "application/octet-stream";
    if length <= PIECE_BYTES as u64 {
        let mut content = vec![0; length as usize];
        file.read_exact_at(&mut content, start).map_err(fault::on(path))?;
        return Ok(Response::bytes(status, kind, content));
    }
    let path = path.to_owned();
    let pieces = work::stream(identity, move |out| {
        let mut at = start;
        while at < start + length {
            let mut piece = vec![0; PIECE_BYTES.min((start + length - at) as usize)];
            file.read_exact_at(&mut piece, at).map_err(fault::on(&path))?;
            at += piece.len() as u64;
            if !out.send(piece) {
                break;
            }
        }
        Ok(())
    })?;
    Ok(streamed(status, kind, pieces).with_length(length))
}

/// An answer made of a stream's pieces.
pub fn streamed(status: u16, content_type: &str, mut pieces: Pieces) -> Response {
    Response::stream(status, content_type, move |mut out| async move {
        while let Some(piece) = pieces.next().await? {
            out.write(&piece).await?;
        }
        Ok(())
    })
}

fn unsatisfiable(size: u64) -> Response {
    let message = format!("the range is not within the file's {size} bytes");
    let body = json!({"code": "INVALID_FILE", "message": message, "remedy": "ask for a range within Content-Range", "retryable": false});
    Response::json(416, &body).header("Content-Range", format!("bytes */{size}"))
}

/// RFC 6266, with the plain name for those who do not read the encoded one.
fn disposition(path: &Path) -> String {
    let name = path.file_name().map_or_else(|| "file".into(), |name| name.to_string_lossy());
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_graphic() && !matches!(c, '"' | '\\' | ';') || c == ' ' { c } else { '_' })
        .collect();
    let encoded: String = name
        .bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

/// Lines `first` (from 1) to `first + count - 1`, joined by their ends: the last has none, as OpenSandbox's clients expect.
pub fn lines(identity: &Identity, path: &Path, first: u64, count: u64) -> Result<Response> {
    if first == 0 || count == 0 {
        return Err(Error::invalid("offset and limit count lines from 1").execd("INVALID_FILE"));
    }
    let (mut file, _) = work::brief(identity, || open_regular(path))?;
    let path = path.to_owned();
    let pieces = work::stream(identity, move |out| send_lines(&mut file, first, count, out).map_err(fault::on(&path)))?;
    Ok(streamed(200, "text/plain; charset=utf-8", pieces))
}

fn send_lines(file: &mut File, first: u64, count: u64, out: &Out) -> io::Result<()> {
    let mut window = Window { skip: first - 1, left: count };
    let mut buffer = vec![0; PIECE_BYTES];
    // A line end, until it is known that a line follows.
    let mut held = Vec::new();
    while window.left > 0 {
        let read = file.read(&mut buffer)?;
        let mut piece = std::mem::take(&mut held);
        piece.extend_from_slice(window.cut(&buffer[..read]));
        if piece.last() == Some(&b'\n') {
            held.extend(piece.pop());
        }
        if read == 0 || (!piece.is_empty() && !out.send(piece)) {
            break;
        }
    }
    Ok(())
}

/// Cuts lines out of a stream of bytes.
struct Window {
    skip: u64,
    left: u64,
}

impl Window {
    /// The part of the next bytes that is within.
    fn cut<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let start = advance(data, &mut self.skip);
        let wanted = &data[start..];
        &wanted[..advance(wanted, &mut self.left)]
    }
}

/// Length of the front that ends `lines` lines, counting them down; all of it when they do not end here.
fn advance(data: &[u8], lines: &mut u64) -> usize {
    let mut at = 0;
    while *lines > 0 {
        match memchr(b'\n', &data[at..]) {
            Some(end) => at += end + 1,
            None => return data.len(),
        }
        *lines -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str, first: u64, count: u64, size: usize) -> String {
        let mut window = Window { skip: first - 1, left: count };
        let cut = text.as_bytes().chunks(size).flat_map(|piece| window.cut(piece).to_vec()).collect();
        String::from_utf8(cut).unwrap()
    }

    #[test]
    fn a_window_of_lines_is_the_same_in_any_pieces() {
        let text = "one\ntwo\n\nfour\nlast";
        for size in 1..=text.len() {
            assert_eq!(window(text, 1, 2, size), "one\ntwo\n");
            assert_eq!(window(text, 2, 2, size), "two\n\n");
            assert_eq!(window(text, 4, 9, size), "four\nlast");
            assert_eq!(window(text, 5, 1, size), "last");
            assert_eq!(window(text, 6, 1, size), "");
        }
    }

    #[test]
    fn a_name_is_told_safely() {
        let told = disposition(Path::new("/a/x\"\r\né;.txt"));
        assert_eq!(told, "attachment; filename=\"x_____.txt\"; filename*=UTF-8''x%22%0D%0A%C3%A9%3B.txt");
    }
}
