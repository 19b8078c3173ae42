//! The sender of a request as the listener reports it. Limits count by it before a token is known.

use std::net::{IpAddr, Ipv6Addr};

use axum::extract::Request;
use gpuaas_model::PeerSite;

/// Prefix length that identifies the holder of an IPv6 address: providers assign at least a network of this size.
const IPV6_NETWORK_BITS: u32 = 64;

/// Holder of a request's source address: an IPv4 address or an IPv6 network. The listener adds it to the extensions of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    holder: IpAddr,
    is_local: bool,
}

impl PeerAddress {
    /// Returns the holder of the peer address of a TCP connection without a proxy.
    pub fn of(address: IpAddr) -> Self {
        Self { holder: holder(address), is_local: address.to_canonical().is_loopback() }
    }

    /// Returns the holder of an address that a proxy reported. It is never local: a proxy on this machine forwards requests from anywhere.
    pub fn from_proxy(address: IpAddr) -> Self {
        Self { holder: holder(address), is_local: false }
    }

    /// Returns the site by which its connections are counted.
    pub(crate) fn site(self) -> PeerSite {
        PeerSite::of(self.holder)
    }

    /// Returns whether the request came from this machine, over loopback and without a proxy. No other code decides this.
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

/// Returns the sender of a request, if the listener reported it.
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
    fn ipv6_network_has_one_holder_and_mapped_ipv4_address_is_ipv4() {
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }

    #[test]
    fn only_a_direct_connection_over_loopback_is_local() {
        assert!(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].iter().all(|text| of(text).is_local()));
        assert!(["192.0.2.1", "10.0.0.1", "::2", "fe80::1", "0.0.0.0"].iter().all(|text| !of(text).is_local()));
        assert!(!PeerAddress::from_proxy("127.0.0.1".parse().unwrap()).is_local());
    }
}
