//! The lab's subnet and the assignment of its addresses.

use std::{fmt, net::Ipv4Addr};

use serde::{Deserialize, Serialize};

/// A private network of 256 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Subnet(Ipv4Addr);

impl Subnet {
    /// Prefix length in bits.
    pub(crate) const PREFIX: u8 = 24;
    /// Largest number of nodes; the first host address belongs to this machine.
    pub(crate) const NODES_MAX: u8 = 250;

    /// Subnets that a lab may use; none of them is a default of Kubernetes.
    pub(crate) fn candidates() -> impl Iterator<Item = Self> {
        (77..=92).map(|third| Self(Ipv4Addr::new(10, 213, third, 0)))
    }

    /// This machine's address, which is the nodes' gateway.
    pub(crate) fn gateway(self) -> Ipv4Addr {
        self.host(1)
    }

    /// Returns the address of the node with this index, counted from 0.
    pub(crate) fn node(self, index: usize) -> Ipv4Addr {
        let index = u8::try_from(index).unwrap_or(u8::MAX);
        assert!(index < Self::NODES_MAX, "the node index exceeds the subnet");
        self.host(index + 2)
    }

    fn host(self, number: u8) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.to_bits() | u32::from(number))
    }

    /// Reports whether a route's destination overlaps this subnet. The default route does not count.
    pub(crate) fn overlaps(self, destination: &str) -> bool {
        let (address, length) = destination.split_once('/').unwrap_or((destination, "32"));
        let (Ok(address), Ok(length)) = (address.parse::<Ipv4Addr>(), length.parse::<u32>()) else { return false };
        let shared = length.min(u32::from(Self::PREFIX));
        shared > 0 && (address.to_bits() ^ self.0.to_bits()).leading_zeros() >= shared
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, Self::PREFIX)
    }
}

/// Derives a MAC address from an IP address: the same at every boot, so that the ARP caches of other nodes stay valid.
pub(super) fn mac(address: Ipv4Addr) -> String {
    let [_, b, c, d] = address.octets();
    // Locally administered, unicast.
    format!("02:6c:61:{b:02x}:{c:02x}:{d:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_routes_into_the_subnet_overlap_it() {
        let subnet = Subnet(Ipv4Addr::new(10, 213, 77, 0));
        for destination in ["10.213.77.0/24", "10.213.77.9", "10.0.0.0/8", "10.213.77.128/25", "8.0.0.0/5"] {
            assert!(subnet.overlaps(destination), "{destination}");
        }
        for destination in ["default", "0.0.0.0/0", "10.213.78.0/24", "10.213.76.255", "192.0.2.0/24", "fe80::/64"] {
            assert!(!subnet.overlaps(destination), "{destination}");
        }
    }

    #[test]
    fn node_addresses_are_distinct_from_each_other_and_the_gateways() {
        let subnet = Subnet(Ipv4Addr::new(10, 213, 77, 0));
        assert_eq!(subnet.to_string(), "10.213.77.0/24");
        assert_eq!(subnet.gateway().to_string(), "10.213.77.1");
        assert_eq!(subnet.node(0).to_string(), "10.213.77.2");
        assert_eq!(subnet.node(249).to_string(), "10.213.77.251");
        assert_eq!(mac(subnet.node(0)), "02:6c:61:d5:4d:02");
    }
}
