//! Who is likely behind an address: what a stranger is counted by before it has said who it is.

use std::net::{IpAddr, Ipv6Addr};

/// What of an IPv6 address tells the site that holds it. A site is given a network of 48 to 64 bits whole (RFC 6177), so that a host can have
/// as many addresses, and with a bit of luck as many networks of 64 bits, as it likes. Counting by 48 joins at worst neighbours, as one IPv4
/// address in front of an office does.
const IPV6_SITE_BITS: u32 = 48;

/// The holder of an address: of IPv4 the address itself, of IPv6 the site's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerSite(IpAddr);

impl PeerSite {
    /// The holder of that address.
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
    fn a_site_of_ipv6_is_one_holder_and_an_address_in_disguise_is_itself() {
        let of = |text: &str| PeerSite::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:7:1::1"), of("2001:db8:7:ffff::2"), "another network of the same site");
        assert_ne!(of("2001:db8:7::1"), of("2001:db8:8::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
