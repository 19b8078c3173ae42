//! What of a shared machine is a sandbox's own: modules that it loaded for itself, and sockets that its processes hold.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use camino::Utf8Path;

use super::{environment::SandboxEnvironment, facts};
use crate::{
    error::HostError,
    file::Changed,
    host::Process,
    inventory::{Listener, Protocol},
    survey::{self, ModuleState, Tree},
};

/// The kernel's tables, and the state in which a socket of that protocol waits for whoever comes.
const TABLES: &[(&str, Protocol, &str)] = &[
    ("/proc/net/tcp", Protocol::Tcp, "0A"),
    ("/proc/net/tcp6", Protocol::Tcp, "0A"),
    ("/proc/net/udp", Protocol::Udp, "07"),
    ("/proc/net/udp6", Protocol::Udp, "07"),
];

/// Remembers a module as loaded. The machine's kernel is not a sandbox's to change: programs in it find what the machine has.
pub(super) fn load_module(tree: &Tree, name: &str) -> Result<Changed, HostError> {
    if survey::module_state(tree, name) == ModuleState::Present {
        return Ok(Changed::No);
    }
    let folder = Utf8Path::new("/sys/module").join(name.replace('-', "_"));
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if !is_name {
        return Err(HostError::Path { path: folder });
    }
    fs::create_dir_all(tree.place(folder.as_str())).map_err(HostError::file("make", &folder))?;
    Ok(Changed::Yes)
}

/// Sockets that one of this sandbox's processes holds: it shares its machine's network.
pub(super) fn listeners(sandbox: &SandboxEnvironment) -> Result<Vec<Listener>, HostError> {
    let mut holders: BTreeMap<u64, Process> = BTreeMap::new();
    for process in facts::processes(sandbox, &[])? {
        for file in fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(file.path()) else { continue };
            let inode =
                target.to_str().and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode {
                holders.entry(inode).or_insert_with(|| process.clone());
            }
        }
    }
    let mut found = Vec::new();
    for (path, protocol, waiting) in TABLES {
        // A kernel without IPv6 has no such table.
        let table = fs::read_to_string(path).unwrap_or_default();
        let sockets = table.lines().skip(1).filter_map(|line| socket(line, waiting));
        found.extend(sockets.filter_map(|(address, inode)| {
            let process = Some(holders.get(&inode)?.clone());
            Some(Listener { protocol: *protocol, address, process })
        }));
    }
    Ok(found)
}

/// Address and inode of a line of one of the kernel's tables, if it waits for whoever comes.
fn socket(line: &str, waiting: &str) -> Option<(SocketAddr, u64)> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next()?, fields.nth(1)?);
    let inode = fields.nth(5)?.parse().ok()?;
    let (ip, port) = local.split_once(':')?;
    let address = SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?);
    (state == waiting).then_some((address, inode))
}

/// The kernel prints addresses as words in the machine's byte order. One that is mapped into IPv6 is an IPv4 address.
fn address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let octets: [u8; 16] = [word(0)?, word(8)?, word(16)?, word(24)?].concat().try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernels_table_is_a_socket_if_it_waits() {
        let own = format!("{:08X}", u32::from_ne_bytes([10, 0, 0, 7]));
        let mapped = format!("0000000000000000{:08X}{own}", u32::from_ne_bytes([0, 0, 0xff, 0xff]));
        let line = |at: &str, state: &str| {
            format!(
                "   0: {at}:192B 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100"
            )
        };
        let expected = (SocketAddr::from(([10, 0, 0, 7], 6_443)), 4_711);
        assert_eq!(socket(&line(&own, "0A"), "0A"), Some(expected));
        assert_eq!(socket(&line(&mapped, "0A"), "0A"), Some(expected));
        assert_eq!((socket(&line(&own, "01"), "0A"), socket("nonsense", "0A")), (None, None));
    }
}
