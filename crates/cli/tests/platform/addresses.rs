//! Reserves a block of loopback addresses for one fleet: 127.X.Y.0/24, outside the addresses of `gpuaas dev` (127.64.0.0 and up).

use std::net::{Ipv4Addr, UdpSocket};

/// Last octet and UDP port of the socket that reserves a block, also against tests of another checkout.
const RESERVATION_SOCKET: (u8, u16) = (254, 7440);
/// Last octet of the first replica; nodes have lower ones.
const REPLICAS_FROM: u8 = 201;

/// A reserved block; dropping it releases the block.
pub(crate) struct AddressBlock {
    second: u8,
    third: u8,
    _reservation: UdpSocket,
}

impl AddressBlock {
    /// Reserves any free block.
    pub(crate) fn take() -> Self {
        let start = std::process::id();
        let blocks = (0..63 * 256_u32).map(|step| start.wrapping_add(step) % (63 * 256));
        let mut free = blocks.filter_map(|number| {
            let (second, third) = (1 + u8::try_from(number / 256).ok()?, u8::try_from(number % 256).ok()?);
            let held = UdpSocket::bind((Ipv4Addr::new(127, second, third, RESERVATION_SOCKET.0), RESERVATION_SOCKET.1))
                .ok()?;
            Some(Self { second, third, _reservation: held })
        });
        free.next().expect("a free block of loopback addresses")
    }

    /// Returns the address of node `number`, from 1.
    pub(crate) fn of_node(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.second, self.third, number)
    }

    /// Returns the address of replica `number`, from 0.
    pub(crate) fn of_replica(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.second, self.third, REPLICAS_FROM + number)
    }
}
