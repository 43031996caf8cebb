//! HTTP/1.1 over the inherited unix socket: just what the gateway needs, small enough to idle in a megabyte.
//!
//! `listener` accepts, `connection` speaks the protocol, `request` and `response` are what handlers see, `sse` frames events.
//! Invariant: a handler's future is dropped as soon as its client is gone, so a guard's `Drop` is where clean-up belongs.

mod chunked;
mod connection;
pub mod listener;
mod request;
mod response;
pub mod sse;
mod upgrade;

pub use chunked::{Decoder, Step};
pub use connection::serve as serve_connection;
pub use request::{Headers, Query, Request, RequestBody};
pub use response::{Body, BodyWriter, Response};
pub use upgrade::Upgraded;
