//! Names of signals as clients write them: `SIGINT`, `INT` or `2`.

use crate::error::{Error, Result};

const NAMES: [(&str, i32); 14] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ABRT", libc::SIGABRT),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("WINCH", libc::SIGWINCH),
];

/// # Errors
/// 400 that lists the names, for any other.
pub fn number(name: &str) -> Result<i32> {
    let upper = name.trim().to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMES.iter().find(|(known, value)| *known == short || value.to_string() == short);
    named.map(|&(_, value)| value).ok_or_else(|| {
        let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        Error::invalid(format!("'{name}' is no signal")).remedy(format!("use one of {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_three_spellings() {
        for name in ["SIGINT", "int", "2"] {
            assert_eq!(number(name).expect("known"), 2);
        }
        assert!(number("SIGNOPE").is_err());
    }
}
