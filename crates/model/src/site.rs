//! Groups peer addresses by site, to count unauthenticated peers.

use std::net::{IpAddr, Ipv6Addr};

/// Prefix length of an IPv6 site. A site receives a /48 to /64 (RFC 6177), so one host can use any number of addresses and often many /64
/// networks. Counting by /48 at worst groups neighbours, as one IPv4 address in front of an office does.
const IPV6_SITE_BITS: u32 = 48;

/// The likely owner of an address: the address itself for IPv4, its /48 network for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerSite(IpAddr);

impl PeerSite {
    /// Returns the site of `address`. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - IPV6_SITE_BITS))).into()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_addresses_of_one_site_are_equal_and_mapped_ipv4_is_ipv4() {
        let of = |text: &str| PeerSite::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:7:1::1"), of("2001:db8:7:ffff::2"), "another network of the same site");
        assert_ne!(of("2001:db8:7::1"), of("2001:db8:8::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
