//! A connection after a 101: raw bytes both ways, for WebSockets and proxied upgrades.
//!
//! Handed to the function of `Response::upgrade`. Invariant: bytes the client sent right behind its request come first.

use std::io;
use std::rc::Rc;

use super::connection::Connection;

#[derive(Clone)]
pub struct Upgraded {
    connection: Rc<Connection>,
}

impl Upgraded {
    pub(super) fn new(connection: Rc<Connection>) -> Self {
        Self { connection }
    }

    /// Next bytes from the client, empty at its end. One reader at a time; a clone may write meanwhile.
    pub async fn read(&self) -> io::Result<Vec<u8>> {
        self.connection.receive().await
    }

    pub async fn write(&self, data: &[u8]) -> io::Result<()> {
        self.connection.send(data).await
    }
}
