//! Matches names and paths against a glob: `*`, `?`, `[a-z]`, `[!x]`, `{a,b}`, `**`, and `\` before a plain character.
//!
//! Pure. `*` and `?` stay within one name, `**` crosses `/`. Invariant: time is bounded by pattern length × text length per alternative,
//! and the number of alternatives by `MAX_ALTERNATIVES`.

use crate::error::{Error, Result};

const MAX_ALTERNATIVES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Char(char),
    One,
    /// Any run of characters without `/`.
    Run,
    /// Any run at all.
    Deep,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

#[derive(Debug)]
pub struct Glob {
    alternatives: Vec<Vec<Piece>>,
    /// It speaks of whole paths, not of base names.
    pub has_slash: bool,
}

impl Glob {
    /// # Errors
    /// 400 for an unclosed class or brace, or too many alternatives.
    pub fn new(pattern: &str) -> Result<Self> {
        let alternatives = expand(pattern)?;
        let alternatives = alternatives.iter().map(|p| compile(p)).collect::<Result<_>>()?;
        Ok(Self { alternatives, has_slash: pattern.contains('/') })
    }

    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        self.alternatives.iter().any(|pieces| matches(pieces, &text))
    }
}

/// Expands `{a,b}`, the first pair first; nested ones come with the recursion.
fn expand(pattern: &str) -> Result<Vec<String>> {
    let mut done = Vec::new();
    let mut waiting = vec![pattern.to_owned()];
    while let Some(pattern) = waiting.pop() {
        match braces(&pattern)? {
            None => done.push(pattern),
            Some((head, choices, tail)) => waiting.extend(choices.iter().map(|choice| format!("{head}{choice}{tail}"))),
        }
        if done.len() + waiting.len() > MAX_ALTERNATIVES {
            return Err(invalid("it has too many alternatives"));
        }
    }
    Ok(done)
}

/// What is before, in and after the first outermost braces.
fn braces(pattern: &str) -> Result<Option<(&str, Vec<&str>, &str)>> {
    let (mut depth, mut open, mut last, mut choices, mut escaped) = (0, 0, 0, Vec::new(), false);
    for (at, char) in pattern.char_indices() {
        match char {
            _ if std::mem::take(&mut escaped) => {}
            '\\' => escaped = true,
            '{' => {
                depth += 1;
                if depth == 1 {
                    (open, last) = (at, at + 1);
                }
            }
            ',' if depth == 1 => {
                choices.push(&pattern[last..at]);
                last = at + 1;
            }
            '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    choices.push(&pattern[last..at]);
                    return Ok(Some((&pattern[..open], choices, &pattern[at + 1..])));
                }
            }
            _ => {}
        }
    }
    if depth > 0 {
        Err(invalid("a '{' is not closed"))
    } else {
        Ok(None)
    }
}

fn compile(pattern: &str) -> Result<Vec<Piece>> {
    let (mut pieces, mut chars) = (Vec::new(), pattern.chars().peekable());
    while let Some(char) = chars.next() {
        pieces.push(match char {
            '*' if chars.next_if_eq(&'*').is_some() => {
                while chars.next_if_eq(&'*').is_some() {}
                Piece::Deep
            }
            '*' => Piece::Run,
            '?' => Piece::One,
            '[' => class(&mut chars)?,
            '\\' => Piece::Char(chars.next().unwrap_or('\\')),
            // `**/x` matches `x` too.
            '/' if pieces.last() == Some(&Piece::Deep) => continue,
            char => Piece::Char(char),
        });
    }
    Ok(pieces)
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Piece> {
    let negated = chars.next_if(|c| matches!(c, '!' | '^')).is_some();
    let mut ranges = Vec::new();
    loop {
        let first = match chars.next() {
            None => return Err(invalid("a '[' is not closed")),
            Some(']') if !ranges.is_empty() => return Ok(Piece::Class { negated, ranges }),
            Some('\\') => chars.next().unwrap_or('\\'),
            Some(char) => char,
        };
        let is_range = chars.peek() == Some(&'-') && chars.clone().nth(1).is_some_and(|c| c != ']');
        let last = if is_range { chars.nth(1).unwrap_or(first) } else { first };
        ranges.push((first, last));
    }
}

/// All positions of the text reachable after each piece, one piece at a time.
fn matches(pieces: &[Piece], text: &[char]) -> bool {
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for piece in pieces {
        let before = reached.clone();
        for at in 0..=text.len() {
            reached[at] = match piece {
                Piece::Run => before[at] || at > 0 && reached[at - 1] && text[at - 1] != '/',
                Piece::Deep => before[at] || at > 0 && reached[at - 1],
                piece => at > 0 && before[at - 1] && takes(piece, text[at - 1]),
            };
        }
    }
    reached[text.len()]
}

fn takes(piece: &Piece, char: char) -> bool {
    match piece {
        Piece::Char(wanted) => *wanted == char,
        Piece::One => char != '/',
        Piece::Class { negated, ranges } => {
            char != '/' && ranges.iter().any(|&(first, last)| first <= char && char <= last) != *negated
        }
        Piece::Run | Piece::Deep => false,
    }
}

fn invalid(why: &str) -> Error {
    Error::invalid(format!("the pattern cannot be used: {why}")).remedy("write a glob such as *.py or src/**/*.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(pattern: &str, text: &str) -> bool {
        Glob::new(pattern).unwrap().matches(text)
    }

    #[test]
    fn names_match_as_in_a_shell() {
        for (pattern, text) in [
            ("**", "any"),
            ("*", ""),
            ("*.txt", "a.txt"),
            ("?.py", "é.py"),
            ("[a-c]x", "bx"),
            ("[!a]", "b"),
            ("a\\*", "a*"),
            ("*.{py,rs}", "m.rs"),
            ("{a,{b,c}}d", "cd"),
            ("[]]", "]"),
            ("[a-]", "-"),
            ("a*b*c", "aXbYbc"),
            ("a}", "a}"),
        ] {
            assert!(hits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("*.txt", "a.txt.bak"), ("?", ""), ("[a-c]", "d"), ("[^a]", "a"), ("", "x"), ("a\\*", "ab")]
        {
            assert!(!hits(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn only_two_stars_cross_directories() {
        assert!(hits("src/**/*.rs", "src/a/b/c.rs"));
        assert!(hits("src/**/*.rs", "src/c.rs"));
        assert!(!hits("src/*.rs", "src/a/c.rs"));
        assert!(!hits("src/[!x]*", "src//"));
    }

    #[test]
    fn hostile_patterns_are_refused_or_cheap() {
        for bad in ["[a", "{a", "[", &"{a,b}".repeat(10)] {
            assert_eq!(Glob::new(bad).unwrap_err().status, 400, "{bad}");
        }
        assert!(!hits(&"*a".repeat(200), &"a".repeat(199)));
    }
}
