//! `GET /v2/ports`: the TCP ports something in the sandbox listens on, with the process that does.
//!
//! Called by `router`. Read from procfs on each request. Invariant: a port whose process cannot be found is still told.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;

use serde::Serialize;
use serde_json::json;

use crate::error::{Error, Result};
use crate::http::{Request, Response};
use crate::sys;

/// State of a listening socket in /proc/net/tcp.
const LISTEN: &str = "0A";

#[derive(Debug, Serialize, PartialEq, Eq)]
struct Port {
    port: u16,
    protocol: &'static str,
    /// Where it listens; all addresses of a port are told.
    addresses: Vec<String>,
    pid: Option<i32>,
    process: Option<String>,
}

pub fn handle(request: &Request) -> Result<Response> {
    match request.method.as_str() {
        "GET" | "HEAD" => Ok(Response::json(200, &json!({"items": listening()}))),
        method => Err(Error::method_not_allowed(method, &request.path)),
    }
}

/// All listening ports, lowest first.
fn listening() -> Vec<Port> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<Socket> = tables.iter().flat_map(|table| table.lines().filter_map(parse)).collect();
    if sockets.is_empty() {
        return Vec::new();
    }
    let owners = owners();
    let mut ports: BTreeMap<u16, Port> = BTreeMap::new();
    for socket in sockets {
        let owner = owners.get(&socket.inode);
        let new = || Port { port: socket.port, protocol: "tcp", addresses: Vec::new(), pid: None, process: None };
        let port = ports.entry(socket.port).or_insert_with(new);
        port.addresses.push(socket.address.to_string());
        if let (None, Some((pid, name))) = (port.pid, owner) {
            (port.pid, port.process) = (Some(*pid), Some(name.clone()));
        }
    }
    ports.into_values().collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Socket {
    address: IpAddr,
    port: u16,
    inode: u64,
}

/// One line of /proc/net/tcp or tcp6, if it listens.
fn parse(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *state != LISTEN {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    Some(Socket {
        address: address_of(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        inode: inode.parse().ok()?,
    })
}

/// The kernel writes addresses as 32-bit words in the host's byte order.
fn address_of(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(digits.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match digits.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            <[u8; 16]>::try_from(words).ok().map(|bytes| Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// Process and its name by the inode of a socket it holds; the lowest pid where several do.
fn owners() -> HashMap<u64, (i32, String)> {
    let mut owners = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|&pid| pid != 1).collect();
    pids.sort_unstable();
    for pid in pids {
        let inodes = sockets_of(pid);
        if inodes.is_empty() {
            continue;
        }
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
        for inode in inodes {
            owners.entry(inode).or_insert_with(|| (pid, name.clone()));
        }
    }
    owners
}

/// Looks into a process as its own user: the kernel lets nobody else, without a capability the agent gave up.
fn sockets_of(pid: i32) -> Vec<u64> {
    let directory = format!("/proc/{pid}/fd");
    let Ok(about) = fs::metadata(format!("/proc/{pid}")) else { return Vec::new() };
    let found = sys::as_user(about.uid(), about.gid(), &[], || {
        let entries = fs::read_dir(&directory)?.flatten();
        let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        Ok::<_, Error>(links.filter_map(|link| socket_inode(link.to_str()?)).collect())
    });
    found.unwrap_or_default()
}

fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_tables_are_read() {
        let four =
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0";
        let six =
            "   1: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 77 1 0";
        assert_eq!(parse(four).unwrap(), Socket { address: "127.0.0.1".parse().unwrap(), port: 8080, inode: 4242 });
        assert_eq!(parse(six).unwrap(), Socket { address: "::1".parse().unwrap(), port: 80, inode: 77 });
        assert!(parse(&four.replace(" 0A ", " 01 ")).is_none());
        assert!(parse("  sl  local_address rem_address   st").is_none());
        assert_eq!(socket_inode("socket:[12]"), Some(12));
        assert_eq!(socket_inode("pipe:[12]"), None);
    }

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = listener.local_addr().unwrap().port();
        let port = listening().into_iter().find(|port| port.port == wanted).unwrap();
        assert_eq!(port.addresses, ["127.0.0.1"]);
        assert_eq!(port.pid, Some(std::process::id() as i32));
    }
}
