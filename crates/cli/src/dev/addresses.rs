//! A block of loopback addresses of one's own: 127.X.Y.0/24, locked for as long as the process lives.

use std::{
    fs::{File, OpenOptions},
    net::{IpAddr, Ipv4Addr},
};

use anyhow::{Context, bail};
use camino::Utf8Path;
use rustix::fs::{FlockOperation, flock};

/// Blocks there are: the second octet from 64 to 127, the third at will.
const BLOCKS: u16 = 64 * 256;

/// A locked block.
pub(super) struct AddressBlock {
    second: u8,
    third: u8,
    _lock: File,
}

impl AddressBlock {
    /// The block that this data directory had before, if it is free, else any that is. Locks lie in the machine's folder for temporary files,
    /// so that processes of all users see them.
    pub(super) fn lock(remembered: &Utf8Path) -> anyhow::Result<Self> {
        let before: Option<u16> = std::fs::read_to_string(remembered).ok().and_then(|text| text.trim().parse().ok());
        let start = before.unwrap_or_else(|| u16::try_from(std::process::id() % u32::from(BLOCKS)).unwrap_or(0));
        for number in (0..BLOCKS).map(|step| (start + step) % BLOCKS) {
            if let Some(lock) = try_lock(number)? {
                std::fs::write(remembered, number.to_string()).with_context(|| format!("writing {remembered}"))?;
                let [second, third] = number.to_be_bytes();
                return Ok(Self { second: 64 + second, third, _lock: lock });
            }
        }
        bail!("no block of loopback addresses is free")
    }

    /// The address of node `number`, from 1.
    pub(super) fn address(&self, number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, self.second, self.third, number))
    }
}

fn try_lock(number: u16) -> anyhow::Result<Option<File>> {
    let path = std::env::temp_dir().join(format!("gpuaas-addresses-{number}.lock"));
    // Another user's lock file cannot be opened: that block is not ours to take.
    let Ok(file) = OpenOptions::new().create(true).append(true).open(&path) else { return Ok(None) };
    Ok(flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file))
}
