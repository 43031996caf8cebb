//! The execd port on the sandbox's own loopback address, for programs in the sandbox that look for it there.
//!
//! Started by `init` where the operator wants it. Invariants: it is never reachable from outside the sandbox; without the token it answers
//! only that the agent lives and how it is hardened; programs of the sandbox cannot take more than a few connections.

use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::agent::Agent;
use crate::http::{serve_connection, Request, Response};
use crate::router;

const PORT: u16 = 44772;
const MAX_CONNECTIONS: usize = 8;

/// Serves for ever.
///
/// # Errors
/// When a program of the image has the port already.
pub async fn serve(agent: Rc<Agent>) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).await?;
    let room = std::sync::Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(permit) = room.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                // One that cannot be served is closed, which its client sees.
                let served = connection(agent.clone(), stream, permit);
                tokio::task::spawn_local(served);
            }
            // Out of descriptors or memory: leave the queue alone for a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    Ok(())
}

/// Connections are served on UNIX sockets; this one is passed on to such a pair.
async fn connection(agent: Rc<Agent>, mut stream: TcpStream, permit: OwnedSemaphorePermit) -> io::Result<()> {
    let (ours, mut other) = UnixStream::pair()?;
    let handle = move |request| answer(agent.clone(), request);
    let passing = async move { tokio::io::copy_bidirectional(&mut stream, &mut other).await };
    let (_served, passed) = tokio::join!(serve_connection(ours, &handle), passing);
    drop(permit);
    passed.map(drop)
}

async fn answer(agent: Rc<Agent>, request: Request) -> Response {
    let open = request.method == "GET" && ["/ping", "/v1/isolated/capabilities"].contains(&request.path.as_str());
    if open {
        router::answer_anyone(agent, request).await
    } else {
        router::answer(agent, request).await
    }
}
