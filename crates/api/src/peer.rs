//! Who sent a request, as far as the listener can tell: what is counted before a token is known.

use std::net::{IpAddr, Ipv6Addr};

use axum::extract::Request;

/// What of an IPv6 address tells its holder: a network of this many bits is the least that anybody is given.
const IPV6_NETWORK_BITS: u32 = 64;

/// Whose request it is: an address, or the network that somebody was given whole. The listener puts it into every request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    holder: IpAddr,
    is_local: bool,
}

impl PeerAddress {
    /// The holder of the address at the other end of a TCP connection that came through no proxy.
    pub fn of(address: IpAddr) -> Self {
        Self { holder: holder(address), is_local: address.to_canonical().is_loopback() }
    }

    /// The holder of an address that a proxy named. It is never local: a proxy on this machine forwards what comes from anywhere.
    pub fn named_by_proxy(address: IpAddr) -> Self {
        Self { holder: holder(address), is_local: false }
    }

    /// Whether the request came from this very machine, over loopback and through no proxy. The one place that judges it.
    pub fn is_local(self) -> bool {
        self.is_local
    }
}

fn holder(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - IPV6_NETWORK_BITS))).into(),
    }
}

/// Who sent a request, where the listener said it.
pub(crate) fn sender(request: &Request) -> Option<PeerAddress> {
    request.extensions().get().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> PeerAddress {
        PeerAddress::of(text.parse().unwrap())
    }

    #[test]
    fn a_network_of_ipv6_has_one_holder_and_an_address_in_disguise_is_itself() {
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }

    #[test]
    fn only_a_direct_connection_over_loopback_is_local() {
        assert!(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].iter().all(|text| of(text).is_local()));
        assert!(["192.0.2.1", "10.0.0.1", "::2", "fe80::1", "0.0.0.0"].iter().all(|text| !of(text).is_local()));
        assert!(!PeerAddress::named_by_proxy("127.0.0.1".parse().unwrap()).is_local());
    }
}
