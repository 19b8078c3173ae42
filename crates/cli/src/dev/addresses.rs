//! Reserves a block of loopback addresses, 127.X.Y.0/24, for as long as the process lives.

use std::{
    fs::DirEntry,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, UdpSocket},
};

use anyhow::{Context, bail};
use camino::Utf8Path;

/// Number of blocks: the second octet is 64 to 127, the third 0 to 255.
const BLOCKS: u16 = 64 * 256;

/// Last octet and port of the UDP socket that reserves a block. The kernel closes it when the process ends for any reason, so no lock file
/// can go stale. Nodes and replicas use lower addresses, and the port is below the kernel's ephemeral range.
const RESERVATION_SOCKET: (u8, u16) = (254, 7440);

/// A block that no other process on this machine has reserved.
pub(super) struct AddressBlock {
    second: u8,
    third: u8,
    _reservation: UdpSocket,
}

impl AddressBlock {
    /// Reserves the block that this data directory used before, because its nodes know the control plane by an address of it; without one,
    /// any free block, which is then recorded in `remembered`.
    pub(super) fn take(remembered: &Utf8Path) -> anyhow::Result<Self> {
        if let Some(before) = std::fs::read_to_string(remembered).ok().and_then(|text| text.trim().parse().ok()) {
            return Self::take_again(before, remembered);
        }
        let start = u16::try_from(std::process::id() % u32::from(BLOCKS)).unwrap_or(0);
        for number in (0..BLOCKS).map(|step| (start.wrapping_add(step)) % BLOCKS) {
            if let Some(block) = Self::reserve(number)? {
                std::fs::write(remembered, number.to_string()).with_context(|| format!("writing {remembered}"))?;
                return Ok(block);
            }
        }
        bail!("all blocks of loopback addresses are in use")
    }

    fn take_again(number: u16, remembered: &Utf8Path) -> anyhow::Result<Self> {
        if let Some(block) = Self::reserve(number)? {
            return Ok(block);
        }
        let [second, third] = Self::octets(number);
        let by = holder(second, third).unwrap_or_else(|| "another process".to_owned());
        bail!(
            "the addresses 127.{second}.{third}.0/24, which the nodes of this data directory use ({remembered}), are taken by \
             {by}: stop it, or use another --data-dir"
        )
    }

    fn octets(number: u16) -> [u8; 2] {
        let [second, third] = (number % BLOCKS).to_be_bytes();
        [64 + second, third]
    }

    fn reserve(number: u16) -> anyhow::Result<Option<Self>> {
        let [second, third] = Self::octets(number);
        let (last, port) = RESERVATION_SOCKET;
        match UdpSocket::bind((Ipv4Addr::new(127, second, third, last), port)) {
            Ok(held) => Ok(Some(Self { second, third, _reservation: held })),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error).context("reserving a block of loopback addresses"),
        }
    }

    /// Returns the address with `number` as its last octet: nodes count from 1.
    pub(super) fn address(&self, number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, self.second, self.third, number))
    }
}

/// Returns the process that reserved a block, for example `process 4711 (gpuaas dev --data-dir b)`: the owner of the socket, by
/// `/proc/net/udp`. `None` if it belongs to another user or has just ended.
fn holder(second: u8, third: u8) -> Option<String> {
    let (last, port) = RESERVATION_SOCKET;
    let local = format!("{:08X}:{port:04X}", u32::from_ne_bytes([127, second, third, last]));
    let sockets = std::fs::read_to_string("/proc/net/udp").ok()?;
    let fields = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let inode = fields.into_iter().find(|fields| fields.get(1) == Some(&local.as_str()))?.get(9)?.to_string();
    let link = format!("socket:[{inode}]");
    let owns = |process: &DirEntry| {
        let descriptors = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        descriptors
            .into_iter()
            .any(|open| std::fs::read_link(open.path()).is_ok_and(|to| to.as_os_str() == link.as_str()))
    };
    let process = std::fs::read_dir("/proc").ok()?.flatten().find(owns)?;
    let command = std::fs::read_to_string(process.path().join("cmdline")).unwrap_or_default().replace('\0', " ");
    Some(format!("process {} ({})", process.file_name().to_string_lossy(), command.trim()))
}
