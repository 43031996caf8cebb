//! Permission bits in the two dialects: the execd API writes 0644 as the decimal number 644, the native API as the text "0644".
//!
//! Pure. Invariant: a mode is at most 0o7777.

use serde_json::Value;

use crate::error::{Error, Result};

/// Reads the octal digits of an execd mode: 644 is 0o644. A text ("644", "0644", "0o644") is taken too.
///
/// # Errors
/// 400 for digits that are not octal, or too many.
pub fn from_execd(value: &Value) -> Result<u32> {
    match value {
        Value::Number(number) => number.as_u64().and_then(|n| octal(&n.to_string())).ok_or_else(|| invalid(value)),
        Value::String(text) => from_text(text),
        _ => Err(invalid(value)),
    }
}

/// Reads "0644", "644" or "0o644".
pub fn from_text(text: &str) -> Result<u32> {
    octal(text.strip_prefix("0o").unwrap_or(text)).ok_or_else(|| invalid(&Value::from(text)))
}

/// 0o644 as 644.
pub fn to_execd(mode: u32) -> u32 {
    format!("{:o}", mode & 0o7777).parse().unwrap_or_default()
}

/// 0o644 as "0644".
pub fn to_text(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

fn octal(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| matches!(b, b'0'..=b'7'));
    plain.then(|| u32::from_str_radix(digits, 8).ok()).flatten().filter(|&mode| mode <= 0o7777)
}

fn invalid(value: &Value) -> Error {
    Error::invalid(format!("mode {value} is not an octal permission mode"))
        .remedy("write the octal digits, such as 644 or \"0755\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_its_octal_digits_in_both_dialects() {
        assert_eq!(from_execd(&Value::from(644)).unwrap(), 0o644);
        assert_eq!(from_execd(&Value::from("0755")).unwrap(), 0o755);
        assert_eq!(from_text("1777").unwrap(), 0o1777);
        assert_eq!((to_execd(0o100_644), to_execd(0), to_text(0o40_755)), (644, 0, "0755".to_owned()));
    }

    #[test]
    fn what_is_not_octal_is_refused() {
        for bad in
            [Value::from(888), Value::from(-1), Value::from(6.5), Value::Null, Value::from(""), Value::from("77777")]
        {
            assert_eq!(from_execd(&bad).unwrap_err().status, 400, "{bad}");
        }
    }
}
