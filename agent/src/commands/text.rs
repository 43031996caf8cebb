//! Cuts byte streams into text: never inside a UTF-8 sequence, and into lines for the execd dialect.
//!
//! Without I/O. Invariant: what goes in comes out, bytes that are no UTF-8 as U+FFFD, the unterminated tail with `finish`.

/// Longest line held back; a longer one is delivered in pieces.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Holds back the bytes of a character that is not whole yet.
#[derive(Default)]
pub struct Utf8 {
    held: Vec<u8>,
}

impl Utf8 {
    pub fn push(&mut self, data: &[u8]) -> String {
        self.held.extend_from_slice(data);
        let rest = self.held.split_off(whole(&self.held));
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held = rest;
        text
    }

    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// Length of the front that ends between characters.
fn whole(data: &[u8]) -> usize {
    for back in 1..=data.len().min(3) {
        let at = data.len() - back;
        let needs = match data[at] {
            0x00..=0x7f => return data.len(),
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xff => 4,
        };
        return if needs > back { at } else { data.len() };
    }
    data.len()
}

/// Lines without their ends (`\n`, `\r` or `\r\n`); an empty line is "\n", as the OpenSandbox protocol has it.
#[derive(Default)]
pub struct Lines {
    held: Vec<u8>,
    after_return: bool,
}

impl Lines {
    pub fn push(&mut self, data: &[u8], mut emit: impl FnMut(String)) {
        let mut rest = data;
        if std::mem::take(&mut self.after_return) && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        while let Some(end) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            self.held.extend_from_slice(&rest[..end]);
            emit(line(&std::mem::take(&mut self.held)));
            let is_pair = rest[end] == b'\r' && rest.get(end + 1) == Some(&b'\n');
            self.after_return = rest[end] == b'\r' && end + 1 == rest.len();
            rest = &rest[end + 1 + usize::from(is_pair)..];
        }
        self.held.extend_from_slice(rest);
        if self.held.len() > MAX_LINE_BYTES {
            let tail = self.held.split_off(whole(&self.held));
            emit(line(&std::mem::replace(&mut self.held, tail)));
        }
    }

    pub fn finish(&mut self) -> Option<String> {
        (!self.held.is_empty()).then(|| line(&std::mem::take(&mut self.held)))
    }
}

fn line(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "\n".to_owned();
    }
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_survive_any_cut() {
        let text = "aä€😀z";
        for cut in 0..=text.len() {
            let mut utf8 = Utf8::default();
            let (head, tail) = text.as_bytes().split_at(cut);
            let parts = [utf8.push(head), utf8.push(tail), utf8.finish()];
            assert_eq!(parts.concat(), text);
        }
    }

    #[test]
    fn an_unfinished_character_is_delivered_at_the_end() {
        let mut utf8 = Utf8::default();
        assert_eq!(utf8.push(b"ok\xe2\x82"), "ok");
        assert_eq!(utf8.finish(), "\u{fffd}");
        assert_eq!(utf8.push(b"\xff\xfe."), "\u{fffd}\u{fffd}.");
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_arrive() {
        let data = b"one\r\n\ntwo\rthree\n\r\ntail";
        for cut in 0..=data.len() {
            let (mut lines, mut out) = (Lines::default(), Vec::new());
            lines.push(&data[..cut], |line| out.push(line));
            lines.push(&data[cut..], |line| out.push(line));
            out.extend(lines.finish());
            assert_eq!(out, ["one", "\n", "two", "three", "\n", "tail"], "cut at {cut}");
        }
    }
}
