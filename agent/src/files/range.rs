//! The `Range` header of a download (RFC 9110 §14), without I/O.
//!
//! Invariant: a span lies within the file.

/// What part of a file was asked for.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Wanted {
    All,
    /// First byte and number of bytes.
    Part {
        start: u64,
        length: u64,
    },
    Unsatisfiable,
}

/// Reads `header` for a file of `size` bytes. Other units and lists of ranges mean the whole file, as the RFC allows; a malformed
/// or empty range is unsatisfiable.
pub fn wanted(header: Option<&str>, size: u64) -> Wanted {
    let Some(spec) = header.and_then(|h| h.trim().strip_prefix("bytes=")) else { return Wanted::All };
    if spec.contains(',') {
        return Wanted::All;
    }
    part(spec.trim(), size).map_or(Wanted::Unsatisfiable, |(start, length)| Wanted::Part { start, length })
}

fn part(spec: &str, size: u64) -> Option<(u64, u64)> {
    let (first, last) = spec.split_once('-')?;
    if first.is_empty() {
        let length = number(last)?.min(size);
        return (length > 0).then(|| (size - length, length));
    }
    let start = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    let end = last.saturating_add(1).min(size);
    (start <= last && start < size).then(|| (start, end - start))
}

fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(header: &str) -> Option<(u64, u64)> {
        match wanted(Some(header), 10) {
            Wanted::Part { start, length } => Some((start, length)),
            _ => None,
        }
    }

    #[test]
    fn each_form_gives_its_bytes() {
        assert_eq!(span("bytes=0-3"), Some((0, 4)));
        assert_eq!(span("bytes=4-"), Some((4, 6)));
        assert_eq!(span("bytes=-3"), Some((7, 3)));
        assert_eq!(span("bytes=-30"), Some((0, 10)));
        assert_eq!(span("bytes=8-99999999999999999999999"), Some((8, 2)));
    }

    #[test]
    fn what_the_file_does_not_have_is_unsatisfiable() {
        for header in
            ["bytes=10-", "bytes=5-4", "bytes=-0", "bytes=", "bytes=x-1", "bytes=1", "bytes=--1", "bytes=+1-2"]
        {
            assert_eq!(wanted(Some(header), 10), Wanted::Unsatisfiable, "{header}");
        }
        assert_eq!(wanted(Some("bytes=0-"), 0), Wanted::Unsatisfiable);
        assert_eq!(wanted(Some("bytes=-1"), 0), Wanted::Unsatisfiable);
    }

    #[test]
    fn other_units_and_lists_mean_the_whole_file() {
        for header in [None, Some("lines=1-2"), Some("bytes=0-1,3-4")] {
            assert_eq!(wanted(header, 10), Wanted::All);
        }
    }

    #[test]
    fn a_span_never_leaves_the_file() {
        let ends = ["", "0", "1", "9", "10", "11", "18446744073709551615"];
        for size in [0, 1, 10, u64::MAX] {
            for first in ends {
                for last in ends {
                    if let Wanted::Part { start, length } = wanted(Some(&format!("bytes={first}-{last}")), size) {
                        assert!(length > 0 && start.checked_add(length).is_some_and(|end| end <= size));
                    }
                }
            }
        }
    }
}
