//! The one error of the agent: what went wrong, as the two HTTP dialects say it.
//!
//! Every handler returns `Result<_, Error>`; only `router` turns an `Error` into bytes. Codes of the native dialect come from
//! `api/errors.yaml`; the execd routes use the names of the OpenSandbox protocol. Invariant: no error tells a secret.

use std::fmt;
use std::io;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Clone)]
pub struct Error {
    pub status: u16,
    /// Code under `/v2` (snake_case, `api/errors.yaml`).
    pub code: &'static str,
    /// Code under the execd routes (`FILE_NOT_FOUND` and so on).
    pub execd_code: &'static str,
    pub message: String,
    pub cause: Option<String>,
    /// What the caller can do next.
    pub remedy: Option<String>,
    pub retryable: bool,
}

impl Error {
    pub fn new(status: u16, code: &'static str, execd_code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, code, execd_code, message, cause: None, remedy: None, retryable: false }
    }

    /// The request itself is wrong (400).
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request", "INVALID_REQUEST_BODY", message)
    }

    /// A query parameter is missing or unreadable (400).
    pub fn query(name: &str) -> Self {
        Self::new(400, "invalid_request", "MISSING_QUERY", format!("query parameter '{name}' is missing or not valid"))
            .remedy(format!("add ?{name}=… to the URL"))
    }

    /// No such route or thing (404).
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "not_found", "UNKNOWN", message)
            .remedy("compare the address with the specification in api/agent.yaml")
    }

    /// A file operation's target is not there (404).
    pub fn file_not_found(path: &str) -> Self {
        Self::new(404, "file_not_found", "FILE_NOT_FOUND", format!("no such file or directory: {path}"))
            .remedy("list the parent directory to see what is there")
    }

    /// It is the agent's or the sandbox's fault (500).
    pub fn runtime(message: impl Into<String>) -> Self {
        Self::new(500, "agent_error", "RUNTIME_ERROR", message)
    }

    pub fn method_not_allowed(method: &str, path: &str) -> Self {
        Self::new(405, "method_not_allowed", "UNKNOWN", format!("{method} is not served at {path}"))
            .remedy("compare the method with the specification in api/agent.yaml")
    }

    pub fn code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    pub fn execd(mut self, code: &'static str) -> Self {
        self.execd_code = code;
        self
    }

    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{}: {cause}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::runtime("a system call failed in the sandbox").cause(error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        let unknown = error.to_string().starts_with("unknown field");
        let code = if unknown { "unknown_field" } else { "invalid_request" };
        Self::invalid("the body is not the JSON this route takes")
            .code(code)
            .cause(error)
            .remedy("see api/agent.yaml for the fields")
    }
}
