//! Accepts connections on the inherited socket and serves each in a task of its own.
//!
//! Started by `init` once the sandbox is claimed: until then the kernel queues the connections, so the first answer is readiness.

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UnixListener;

use super::connection::Connection;
use super::{Request, Response};

/// Serves `listener` for ever; `handle` answers each request.
pub async fn serve<H, F>(listener: UnixListener, handle: Rc<H>) -> io::Result<()>
where
    H: Fn(Request) -> F + 'static,
    F: Future<Output = Response> + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let handle = handle.clone();
                tokio::task::spawn_local(async move { Connection::serve(stream, handle.as_ref()).await });
            }
            // Out of descriptors or memory: the listener is still good, so leave the queue alone for a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
