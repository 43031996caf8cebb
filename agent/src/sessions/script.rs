//! What is written to a session's shell, and what it answers on its control socket. Pure.
//!
//! The shell is interactive, so that SIGINT ends a whole run and not the shell; each run is sourced, so that it prints no job notices, and
//! keeps functions, aliases, variables, directory and jobs. Descriptors: standard input is the control socket, `control` a copy of it,
//! `source` the run's text.

use std::path::Path;

/// The line after an exiting shell's state: background jobs may hold the socket open for long.
pub const LAST: &str = "# talon: that was all";

/// How the image's shell is started and spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    program: &'static str,
    is_bash: bool,
    control: u32,
    source: u32,
}

/// What the shell says on its control socket.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Ready,
    /// A run ended with this code.
    Done(i32),
    /// The shell is exiting with this code; commands that bring back its state follow until it closes.
    Exiting(i32),
}

impl Dialect {
    /// Of the shell that is in the sandbox; bash wherever there is one.
    pub fn find() -> Self {
        let bash =
            ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"].into_iter().find(|path| Path::new(path).exists());
        match bash {
            // High numbers, because scripts use the low ones; plain shells know no others.
            Some(program) => Self { program, is_bash: true, control: 250, source: 249 },
            None => Self { program: "/bin/sh", is_bash: false, control: 9, source: 8 },
        }
    }

    pub fn argv(&self) -> Vec<String> {
        let options: &[&str] = if self.is_bash { &["--noprofile", "--norc", "--noediting", "-i"] } else { &["-i"] };
        std::iter::once(self.program).chain(options.iter().copied()).map(str::to_owned).collect()
    }

    /// The first lines: settles the shell, then says it is ready. `set -e` is the one thing not brought back: it would end each new
    /// shell at the first failure.
    pub fn greeting(&self, state: &str, delimiter: &str) -> String {
        let control = self.control;
        let settle = if self.is_bash {
            format!(
                "exec {control}>&0; set +o history +H; export -n PS1 PS2; unset HISTFILE MAILCHECK\n\
                 trap 'builtin printf \"exit %s\\n\" \"$?\" >&{control}; {{ builtin printf \"cd -- %q\\n\" \"$PWD\"; builtin declare -p; \
                 builtin declare -f; builtin alias -p; builtin shopt -p; builtin set +o; builtin printf \"%s\\n\" \"{LAST}\"; }} >&{control} 2>/dev/null' EXIT\n"
            )
        } else {
            format!("exec {control}>&0; PS1=; PS2=\ntrap 'printf \"exit %s\\n{LAST}\\n\" \"$?\" >&{control}' EXIT\n")
        };
        let restore = if state.is_empty() {
            String::new()
        } else {
            format!("{} 2>/dev/null\n{state}\nset +e\n{delimiter}\n", self.source_line(delimiter))
        };
        format!("{settle}{restore}{}", self.say("ready 0"))
    }

    /// One run. `delimiter` must be a line that is not in `command`.
    pub fn run(&self, command: &str, cwd: Option<&str>, delimiter: &str) -> String {
        let enter = cwd.map(|cwd| format!("cd -- {} && ", quote(cwd))).unwrap_or_default();
        format!("{enter}{}\n{command}\n{delimiter}\n{}", self.source_line(delimiter), self.say("done $?"))
    }

    fn source_line(&self, delimiter: &str) -> String {
        let source = self.source;
        format!(". /dev/fd/{source} {source}<<'{delimiter}' </dev/null")
    }

    fn say(&self, what: &str) -> String {
        let builtin = if self.is_bash { "builtin " } else { "" };
        format!("{builtin}printf '%s\\n' \"{what}\" >&{}\n", self.control)
    }
}

/// Reads one line of the control socket.
pub fn parse(line: &str) -> Option<Said> {
    let (word, code) = line.trim_end().split_once(' ')?;
    let code = code.parse().ok()?;
    match word {
        "ready" => Some(Said::Ready),
        "done" => Some(Said::Done(code)),
        "exit" => Some(Said::Exiting(code)),
        _ => None,
    }
}

/// A word for any shell.
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_shell_says_is_understood() {
        assert_eq!(parse("ready 0\n"), Some(Said::Ready));
        assert_eq!(parse("done 130\n"), Some(Said::Done(130)));
        assert_eq!(parse("exit 7"), Some(Said::Exiting(7)));
        assert_eq!(parse("done x"), None);
        assert_eq!(parse("noise"), None);
    }

    #[test]
    fn quoted_text_is_one_word() {
        assert_eq!(quote("a'b $c"), "'a'\\''b $c'");
    }

    #[test]
    fn a_run_is_sourced_between_delimiters() {
        let bash = Dialect { program: "/bin/bash", is_bash: true, control: 250, source: 249 };
        let text = bash.run("echo hi", Some("/x"), "END_1");
        let expected = "cd -- '/x' && . /dev/fd/249 249<<'END_1' </dev/null\necho hi\nEND_1\nbuiltin printf '%s\\n' \"done $?\" >&250\n";
        assert_eq!(text, expected);
    }
}
