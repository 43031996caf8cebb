//! Takes the secrets that the server named out of a stream, also when a write cuts one in two.
//!
//! One `Redactor` per stream. It holds back only the bytes at the end that could be the beginning of a secret.

/// What a secret is replaced by.
pub const MASK: &[u8] = b"[redacted]";

/// Removes `secrets` from what passes through.
pub struct Redactor {
    secrets: Vec<Vec<u8>>,
    held: Vec<u8>,
}

impl Redactor {
    /// For these secrets; the longest first, so that one that contains another goes whole.
    pub fn new(secrets: &[Vec<u8>]) -> Redactor {
        let mut secrets: Vec<Vec<u8>> = secrets.iter().filter(|secret| !secret.is_empty()).cloned().collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Redactor { secrets, held: Vec::new() }
    }

    /// The part of the stream that may be written now.
    pub fn pass(&mut self, data: &[u8]) -> Vec<u8> {
        if self.secrets.is_empty() {
            return data.to_vec();
        }
        self.held.extend_from_slice(data);
        let (clean, rest) = self.scan(false);
        self.held = rest;
        clean
    }

    /// The end of the stream: what was held back.
    pub fn finish(&mut self) -> Vec<u8> {
        let (clean, _) = self.scan(true);
        self.held.clear();
        clean
    }

    fn scan(&self, last: bool) -> (Vec<u8>, Vec<u8>) {
        let (data, mut clean, mut at) = (&self.held, Vec::with_capacity(self.held.len()), 0);
        while at < data.len() {
            let rest = &data[at..];
            if let Some(secret) = self.secrets.iter().find(|secret| rest.starts_with(secret)) {
                clean.extend_from_slice(MASK);
                at += secret.len();
            } else if !last && self.secrets.iter().any(|secret| secret.len() > rest.len() && secret.starts_with(rest)) {
                break;
            } else {
                clean.push(data[at]);
                at += 1;
            }
        }
        (clean, data[at..].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(secrets: &[&str], pieces: &[&str]) -> String {
        let secrets: Vec<Vec<u8>> = secrets.iter().map(|secret| secret.as_bytes().to_vec()).collect();
        let mut redactor = Redactor::new(&secrets);
        let mut out: Vec<u8> = pieces.iter().flat_map(|piece| redactor.pass(piece.as_bytes())).collect();
        out.extend(redactor.finish());
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_secret_is_masked_wherever_it_stands() {
        assert_eq!(through(&["hunter2"], &["a hunter2 b hunter2"]), "a [redacted] b [redacted]");
    }

    #[test]
    fn a_secret_cut_by_writes_is_masked_too() {
        assert_eq!(through(&["hunter2"], &["a hu", "nt", "er2 b"]), "a [redacted] b");
    }

    #[test]
    fn the_beginning_of_a_secret_that_goes_on_otherwise_is_kept() {
        assert_eq!(through(&["hunter2"], &["a hunt", "ing"]), "a hunting");
        assert_eq!(through(&["hunter2"], &["a hunt"]), "a hunt");
    }

    #[test]
    fn a_secret_inside_a_longer_one_does_not_leave_its_rest() {
        assert_eq!(through(&["key", "key-long"], &["key-long key"]), "[redacted] [redacted]");
    }
}
