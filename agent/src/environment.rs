//! The environment of a new process: defaults, the sandbox's variables, the `.env` file, the request's.
//!
//! Called by `commands::spawn`'s users for each command, because the file may have changed. Invariant: later sources win.

use std::collections::BTreeMap;

use crate::agent::Agent;
use crate::users::Identity;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const ENV_FILE: &str = "/opt/opensandbox/.env";
const MAX_ENV_FILE_BYTES: usize = 1 << 20;

pub type Environment = BTreeMap<String, String>;

/// Variables for a process of `identity`, with `extra` of the request on top.
pub fn compose(agent: &Agent, identity: &Identity, extra: &Environment) -> Environment {
    let settings = agent.settings.borrow();
    let mut env: Environment = [
        ("PATH", PATH),
        ("LANG", "C.UTF-8"),
        ("HOME", &identity.home),
        ("USER", &identity.name),
        ("LOGNAME", &identity.name),
        ("SHELL", &identity.shell),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    env.extend(settings.env.clone());
    let named = settings.env.get("EXECD_ENVS").or(settings.exec_envs_file.as_ref());
    env.extend(read_file(named.map_or(ENV_FILE, String::as_str)));
    env.extend(extra.clone());
    env
}

fn read_file(path: &str) -> Environment {
    let text = match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() <= MAX_ENV_FILE_BYTES as u64 => {
            std::fs::read(path).unwrap_or_default()
        }
        _ => return Environment::new(),
    };
    parse(&String::from_utf8_lossy(&text))
}

/// `KEY=VALUE` lines; quotes are taken off, `export` and comments are allowed, the last one wins.
fn parse(text: &str) -> Environment {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let valid = !name.is_empty() && !name.starts_with('#') && !name.contains(char::is_whitespace);
    valid.then(|| (name.to_owned(), unquote(value.trim()).to_owned()))
}

fn unquote(value: &str) -> &str {
    let quoted = |quote| value.strip_prefix(quote).and_then(|v: &str| v.strip_suffix(quote));
    quoted('"').or_else(|| quoted('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_env_file_takes_quotes_comments_and_the_last_value() {
        let env = parse("# note\nA=1\nexport B=\"x y\"\nC='q=\"r'\nA=2\n\nnonsense\nD=\n");
        let expected = [("A", "2"), ("B", "x y"), ("C", "q=\"r"), ("D", "")];
        assert_eq!(env, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }
}
