//! Which ports are listened on, from the kernel's own tables, which needs no connection attempt.

use std::{fs, net::IpAddr};

use camino::Utf8Path;

use crate::error::HostError;

/// TCP ports of `ports` with a listener at that address or at every address.
pub(crate) fn listening(address: IpAddr, ports: &[u16]) -> Result<Vec<u16>, HostError> {
    let IpAddr::V4(address) = address else { return Ok(Vec::new()) };
    // The kernel prints addresses in the machine's byte order.
    let own = format!("{:08X}", u32::from_ne_bytes(address.octets()));
    let (every, every_v6) = ("0".repeat(8), "0".repeat(32));
    let mut found = Vec::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let table = match fs::read_to_string(path) {
            Ok(table) => table,
            // A kernel without IPv6 has no such table.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(HostError::file("read", Utf8Path::new(path))(error)),
        };
        let listeners = table.lines().skip(1).filter_map(listener);
        found.extend(
            listeners
                .filter(|(at, port)| (*at == own || *at == every || *at == every_v6) && ports.contains(port))
                .map(|(_, port)| port),
        );
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Address and port of a line of the kernel's table, if something listens there.
fn listener(line: &str) -> Option<(&str, u16)> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next()?, fields.nth(1)?);
    let (at, port) = local.split_once(':')?;
    (state == LISTEN).then_some((at, u16::from_str_radix(port, 16).ok()?))
}
