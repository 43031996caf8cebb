//! The agent from outside: the real binary in namespaces of its own, over its own sockets. Needs root.

#![allow(clippy::unwrap_used)]

mod commands;
mod init;
mod processes;
mod sandbox;
