//! `/proxy/{port}/{path}`: any HTTP/1.1 request, WebSockets included, passed on to a server inside the sandbox.
//!
//! Called by `router`. Invariants: both bodies stream, neither is held; hop-by-hop headers end here; the agent's own token never
//! reaches the user's server; `127.0.0.1` is tried first, then `[::1]`.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::http::{BodyWriter, Headers, Request, RequestBody, Response, Upgraded};

mod upstream;

pub use upstream::{send, Streaming};
use upstream::{Answer, Framing, Upstream};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Of one connection only (RFC 9110 §7.6.1).
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

type Reader = Box<dyn AsyncRead + Unpin>;
type Writer = Box<dyn AsyncWrite + Unpin>;

/// A server to pass a request on to, and how.
pub struct Target {
    pub reader: Reader,
    pub writer: Writer,
    /// Path and query.
    pub path: String,
    /// Headers of the agent's own, each with its line end.
    pub extra: String,
    /// What it is, for errors.
    pub name: String,
}

pub async fn handle(agent: Rc<Agent>, request: Request, path: &[&str]) -> Result<Response> {
    let port = path.get(1).and_then(|port| port.parse::<u16>().ok()).filter(|&port| port > 0);
    let port = port.ok_or_else(|| Error::invalid("the port in /proxy/{port}/… must be a number from 1 to 65535"))?;
    let (reader, writer) = connect(port).await?.into_split();
    let below = request.path.splitn(4, '/').nth(3).unwrap_or_default();
    let query = if request.raw_query.is_empty() { String::new() } else { format!("?{}", request.raw_query) };
    let host = request.headers.get("host").map_or_else(|| format!("Host: 127.0.0.1:{port}\r\n"), |_| String::new());
    let target = Target {
        reader: Box::new(reader),
        writer: Box::new(writer),
        path: format!("/{below}{query}"),
        extra: host,
        name: format!("the server on port {port}"),
    };
    let token = agent.settings.borrow().token.clone();
    forward(request, &token, target).await
}

/// Passes a request on, both bodies streaming. `token` is the agent's own and stays here.
pub async fn forward(request: Request, token: &str, target: Target) -> Result<Response> {
    let head = request_head(&request, &target, token);
    let Target { reader, mut writer, name, .. } = target;
    writer.write_all(&head).await.map_err(|error| broken(&name, &error))?;
    let bodiless = request.method == "HEAD";
    let mut upstream = Upstream { reader, input: Vec::new() };
    let chunked = request.body.declared_length().is_none();
    let mut uplink = Uplink { body: request.body, writer, chunked };
    // A server may answer before it has read the body, or only when it has.
    let answer = tokio::select! {
        answer = upstream.answer() => answer.map_err(|error| broken(&name, &error))?,
        error = uplink.run() => return Err(error.into()),
    };
    Ok(respond(answer, bodiless, upstream, uplink))
}

fn respond(answer: Answer, bodiless: bool, upstream: Upstream, uplink: Uplink) -> Response {
    let Answer { status, headers, framing } = answer;
    if status == 101 {
        return Response::upgrade(headers, move |client| tunnel(client, upstream, uplink.writer));
    }
    if bodiless || matches!(status, 204 | 304) {
        let length = match framing {
            Framing::Length(length) if status != 204 => Some(("Content-Length".to_owned(), length.to_string())),
            _ => None,
        };
        return Response { headers: headers.into_iter().chain(length).collect(), ..Response::empty(status) };
    }
    let length = if let Framing::Length(length) = framing { Some(length) } else { None };
    let mut response = Response::stream(status, "", move |out| relay(upstream, uplink, framing, out));
    response.headers = headers;
    match length {
        Some(length) => response.with_length(length),
        None => response,
    }
}

async fn connect(port: u16) -> Result<TcpStream> {
    let mut first = None;
    for host in ["127.0.0.1", "::1"] {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => first = first.or(Some(error)),
        }
    }
    let mut error = Error::new(
        502,
        "upstream_unavailable",
        "RUNTIME_ERROR",
        format!("nothing answers on port {port} in the sandbox"),
    );
    error.retryable = true;
    error.cause = first.map(|error| error.to_string());
    Err(error.remedy("start a server on that port of 127.0.0.1, ::1 or all addresses, then try again"))
}

fn broken(name: &str, error: &io::Error) -> Error {
    Error::new(502, "upstream_unavailable", "RUNTIME_ERROR", format!("{name} did not answer in HTTP/1.1"))
        .cause(error)
        .remedy("look at the server's output")
}

/// The request as the user's server shall see it.
fn request_head(request: &Request, target: &Target, token: &str) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\n{}", request.method, target.path, target.extra);
    let Headers(headers) = &request.headers;
    for (name, value) in headers.iter().filter(|(name, value)| is_for_server(&request.headers, name, value, token)) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if request.body.declared_length().is_none() {
        head.push_str("Transfer-Encoding: chunked\r\n");
    }
    match upgrade_of(&request.headers) {
        Some(protocol) => head.push_str(&format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")),
        None => head.push_str("Connection: close\r\n\r\n"),
    }
    head.into_bytes()
}

fn is_for_server(headers: &Headers, name: &str, value: &str, token: &str) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let ours = is("x-execd-access-token")
        || is("authorization") && value.strip_prefix("Bearer ").is_some_and(|v| v.trim() == token);
    // The connection to the client answers an Expect itself.
    !ours && !is("expect") && !is_hop_by_hop(headers.get("connection"), name)
}

fn is_hop_by_hop(connection: Option<&str>, name: &str) -> bool {
    let mut named = connection.unwrap_or_default().split(',').map(str::trim);
    HOP_BY_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop)) || named.any(|other| name.eq_ignore_ascii_case(other))
}

/// The protocol a request wants to change to. Not HTTP/2, whose frames would need another proxy.
fn upgrade_of(headers: &Headers) -> Option<String> {
    let wants = headers.get("connection")?.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    let protocol = headers.get("upgrade")?;
    (wants && !protocol.eq_ignore_ascii_case("h2c")).then(|| protocol.to_owned())
}

/// The request's body on its way to the server.
struct Uplink {
    body: RequestBody,
    writer: Writer,
    chunked: bool,
}

impl Uplink {
    /// Passes the body on, then waits for ever; ends only when the client broke its body off.
    async fn run(&mut self) -> io::Error {
        loop {
            let sent = match self.body.chunk().await {
                Err(error) => return error,
                Ok(None) => break,
                Ok(Some(data)) if self.chunked => {
                    self.write(&[format!("{:x}\r\n", data.len()).as_bytes(), &data, b"\r\n"].concat()).await
                }
                Ok(Some(data)) => self.write(&data).await,
            };
            // A server that reads no more may still answer.
            if sent.is_err() {
                return std::future::pending().await;
            }
        }
        if std::mem::take(&mut self.chunked) {
            let _unread = self.write(b"0\r\n\r\n").await;
        }
        std::future::pending().await
    }

    async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.writer.write_all(data).await
    }
}

/// The answer's body on its way to the client, and what is left of the request's.
async fn relay(mut upstream: Upstream, mut uplink: Uplink, mut framing: Framing, mut out: BodyWriter) -> Result<()> {
    if upstream.input.is_empty() {
        out.flush().await?;
    }
    let down = async {
        while let Some(data) = upstream.body(&mut framing).await? {
            out.write(&data).await?;
        }
        Ok(())
    };
    tokio::select! {
        done = down => done,
        error = uplink.run() => Err(error.into()),
    }
}

/// Bytes both ways until one side ends.
async fn tunnel(client: Upgraded, mut upstream: Upstream, mut writer: Writer) {
    let back = client.clone();
    let up = async {
        loop {
            let data = client.read().await?;
            if data.is_empty() {
                return writer.shutdown().await;
            }
            writer.write_all(&data).await?;
        }
    };
    let down = async {
        while !upstream.input.is_empty() || upstream.fill().await? {
            back.write(&std::mem::take(&mut upstream.input)).await?;
        }
        Ok::<(), io::Error>(())
    };
    // Whichever way ends first, and however: the other has nobody to talk to.
    tokio::select! {
        _ended = up => {}
        _ended = down => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        Headers(pairs.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect())
    }

    #[test]
    fn the_agents_token_and_hop_by_hop_headers_stay_here() {
        let all = headers(&[("Connection", "close, X-Hop")]);
        for (name, value) in [
            ("X-Execd-Access-Token", "t"),
            ("Authorization", "Bearer t"),
            ("connection", "x"),
            ("x-hop", "1"),
            ("TE", "gzip"),
            ("Expect", "100-continue"),
        ] {
            assert!(!is_for_server(&all, name, value, "t"), "{name}");
        }
        for (name, value) in
            [("Authorization", "Bearer other"), ("Authorization", "Basic t"), ("Cookie", "t"), ("Host", "x")]
        {
            assert!(is_for_server(&all, name, value, "t"), "{name}");
        }
    }

    #[test]
    fn only_a_wanted_upgrade_is_one() {
        let both = [("Connection", "keep-alive, Upgrade"), ("Upgrade", "websocket")];
        assert_eq!(upgrade_of(&headers(&both)).as_deref(), Some("websocket"));
        assert_eq!(upgrade_of(&headers(&both[1..])), None);
        assert_eq!(upgrade_of(&headers(&[both[0], ("Upgrade", "h2c")])), None);
    }
}
