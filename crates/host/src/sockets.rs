//! Listening sockets, from the kernel's own tables, without a connection attempt.
//!
//! Absent: sockets of other network namespaces; containers have their own.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use camino::Utf8Path;

use crate::{
    error::HostError,
    inventory::{Listener, Process, Protocol},
};

/// The kernel's tables, and the state of a listening socket in each.
const TABLES: &[(&str, Protocol, &str)] = &[
    ("/proc/net/tcp", Protocol::Tcp, "0A"),
    ("/proc/net/tcp6", Protocol::Tcp, "0A"),
    ("/proc/net/udp", Protocol::Udp, "07"),
    ("/proc/net/udp6", Protocol::Udp, "07"),
];

/// Returns those TCP ports of `ports` that have a listener at this address or at the unspecified one.
pub(crate) fn listening(address: IpAddr, ports: &[u16]) -> Result<Vec<u16>, HostError> {
    let at = |socket: &Socket| socket.protocol == Protocol::Tcp && reaches(socket.address.ip(), address);
    let mut found: Vec<u16> = sockets()?
        .iter()
        .filter(|socket| at(socket))
        .map(|socket| socket.address.port())
        .filter(|port| ports.contains(port))
        .collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Returns every listening socket, with the process among `processes` that has it open, if any.
pub(crate) fn listeners(processes: Vec<Process>) -> Result<Vec<Listener>, HostError> {
    let sockets = sockets()?;
    let holders = holders(processes);
    let listener = |socket: Socket| Listener {
        protocol: socket.protocol,
        address: socket.address,
        process: holders.get(&socket.inode).cloned(),
    };
    Ok(sockets.into_iter().map(listener).collect())
}

/// A line of one of the kernel's tables.
struct Socket {
    protocol: Protocol,
    address: SocketAddr,
    inode: u64,
}

fn sockets() -> Result<Vec<Socket>, HostError> {
    let mut found = Vec::new();
    for (path, protocol, state) in TABLES {
        let table = match fs::read_to_string(path) {
            Ok(table) => table,
            // A kernel without IPv6 has no such table.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(HostError::file("read", Utf8Path::new(path))(error)),
        };
        found.extend(table.lines().skip(1).filter_map(|line| socket(line, *protocol, state)));
    }
    Ok(found)
}

/// Parses a line; `None` if the socket is not listening.
fn socket(line: &str, protocol: Protocol, listening_state: &str) -> Option<Socket> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next()?, fields.nth(1)?);
    let inode = fields.nth(5)?.parse().ok()?;
    let (ip, port) = local.split_once(':')?;
    let address = SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?);
    (state == listening_state).then_some(Socket { protocol, address, inode })
}

/// Parses an address: words in the machine's byte order. An IPv4-mapped IPv6 address becomes an IPv4 address.
fn address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let octets: [u8; 16] = words.concat().try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical())
        }
        _ => None,
    }
}

/// Returns true if packets to `address` reach a socket that is bound to `at`.
fn reaches(at: IpAddr, address: IpAddr) -> bool {
    at == address || at.is_unspecified()
}

/// Maps the inodes of sockets to the processes that have them open. Skips descriptors that cannot be read.
fn holders(processes: Vec<Process>) -> BTreeMap<u64, Process> {
    let mut holders = BTreeMap::new();
    for process in processes {
        let files = fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten().flatten();
        for file in files {
            let Ok(target) = fs::read_link(file.path()) else { continue };
            let inode =
                target.to_str().and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode {
                holders.entry(inode).or_insert_with(|| process.clone());
            }
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_line_is_parsed_as_a_socket() {
        let line = "   3: 0100007F:1921 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17236 1 0 100 0";
        let found = socket(line, Protocol::Tcp, "0A").unwrap();
        assert_eq!((found.address.to_string().as_str(), found.inode), ("127.0.0.1:6433", 17_236));
        assert!(socket(line, Protocol::Udp, "07").is_none());
        assert!(socket("nonsense", Protocol::Tcp, "0A").is_none());
    }

    #[test]
    fn ipv4_mapped_address_is_an_ipv4_address() {
        assert_eq!(address("0000000000000000FFFF00000100007F").unwrap(), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(address("00000000000000000000000001000000").unwrap(), IpAddr::V6(Ipv6Addr::LOCALHOST));
        assert_eq!(address("short"), None);
    }
}
