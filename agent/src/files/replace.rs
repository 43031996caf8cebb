//! Replaces text in a file, literally and everywhere.
//!
//! Called by the execd route on a worker thread. Invariant: memory is a few pieces however large the file is; a file without the text is
//! left untouched.

use std::io::{Read, Write};
use std::path::Path;

use memchr::memmem::Finder;

use super::draft::{rewrite, Attributes, Place};
use super::{download, fault};
use crate::error::{Error, Result};

const PIECE_BYTES: usize = 256 << 10;

/// Gives the number of occurrences.
pub fn replace(path: &Path, old: &str, new: &str) -> Result<u64> {
    if old.is_empty() {
        return Err(
            Error::invalid(format!("'old' is empty for {}", path.display())).remedy("give the text to look for")
        );
    }
    let (mut file, _) = download::open_regular(path)?;
    let place = Place::find(path, Attributes::default(), false)?;
    let mut count = 0;
    rewrite(&place, |draft| {
        count = copy(&mut file, draft, old.as_bytes(), new.as_bytes()).map_err(fault::on(path))?;
        Ok(count > 0)
    })?;
    Ok(count)
}

fn copy(from: &mut impl Read, to: &mut impl Write, old: &[u8], new: &[u8]) -> std::io::Result<u64> {
    let (finder, mut held, mut piece, mut count) = (Finder::new(old), Vec::new(), vec![0; PIECE_BYTES], 0);
    loop {
        let read = from.read(&mut piece)?;
        held.extend_from_slice(&piece[..read]);
        let mut done = 0;
        while let Some(at) = finder.find(&held[done..]) {
            to.write_all(&held[done..done + at])?;
            to.write_all(new)?;
            done += at + old.len();
            count += 1;
        }
        // What may be the beginning of the next occurrence waits for more.
        let keep = if read == 0 { 0 } else { (old.len() - 1).min(held.len() - done) };
        to.write_all(&held[done..held.len() - keep])?;
        held.drain(..held.len() - keep);
        if read == 0 {
            return Ok(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a few bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn the_result_is_that_of_replacing_in_one_string() {
        for (text, old, new) in [
            ("aaa", "aa", "b"),
            ("xabcabcab", "abc", ""),
            ("ab", "abc", "z"),
            ("", "a", "b"),
            ("aXbX", "X", "XX"),
            ("aab", "ab", "c"),
        ] {
            for size in 1..=text.len().max(1) {
                let mut out = Vec::new();
                let count =
                    copy(&mut Trickle(text.as_bytes(), size), &mut out, old.as_bytes(), new.as_bytes()).unwrap();
                assert_eq!(String::from_utf8(out).unwrap(), text.replace(old, new), "{text} in {size}");
                assert_eq!(count as usize, text.matches(old).count());
            }
        }
    }
}
