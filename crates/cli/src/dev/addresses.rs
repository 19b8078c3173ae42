//! Reserves a block of loopback addresses, 127.X.Y.0/24, for as long as the process lives.

use std::{
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
    /// Reserves the block that this data directory used before if it is free, otherwise any free one, and records it in `remembered`.
    pub(super) fn take(remembered: &Utf8Path) -> anyhow::Result<Self> {
        let before: Option<u16> = std::fs::read_to_string(remembered).ok().and_then(|text| text.trim().parse().ok());
        let start = before.unwrap_or_else(|| u16::try_from(std::process::id() % u32::from(BLOCKS)).unwrap_or(0));
        for number in (0..BLOCKS).map(|step| (start.wrapping_add(step)) % BLOCKS) {
            let [second, third] = number.to_be_bytes();
            let second = 64 + second;
            if let Some(held) = reserve(second, third)? {
                std::fs::write(remembered, number.to_string()).with_context(|| format!("writing {remembered}"))?;
                return Ok(Self { second, third, _reservation: held });
            }
        }
        bail!("all blocks of loopback addresses are in use")
    }

    /// Returns the address with `number` as its last octet: nodes count from 1.
    pub(super) fn address(&self, number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, self.second, self.third, number))
    }
}

fn reserve(second: u8, third: u8) -> anyhow::Result<Option<UdpSocket>> {
    let (last, port) = RESERVATION_SOCKET;
    match UdpSocket::bind((Ipv4Addr::new(127, second, third, last), port)) {
        Ok(held) => Ok(Some(held)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error).context("reserving a block of loopback addresses"),
    }
}
