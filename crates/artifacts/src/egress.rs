//! Restricts the servers from which a release may be fetched.
//!
//! Guarantees:
//! - Each connection resolves the name once and checks the very address that it connects to.
//! - Unless a setting names the network, nothing is sent to this machine, and private networks and clouds' metadata services are not
//!   connected to.
//! - The reason why a server was not reached is only logged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpStream;

/// An IP network, for example `10.0.0.0/8`.
pub use ipnet::IpNet as Network;

/// Number of addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// IPv4 networks that are not public: IANA's special-purpose registry, multicast and reserved addresses; and `168.63.129.16`, a public
/// address at which Azure's hosts answer their guests.
const V4_NOT_PUBLIC: [([u8; 4], u8); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([168, 63, 129, 16], 32),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];
/// The network that contains all public IPv6 addresses, except [`V6_NOT_PUBLIC`].
const V6_PUBLIC: ([u16; 8], u8) = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);
/// Networks in [`V6_PUBLIC`] that are not public: protocol assignments with Teredo, documentation, and 6to4, which embeds an IPv4 address.
const V6_NOT_PUBLIC: [([u16; 8], u8); 4] = [
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];

/// The servers that may be connected to.
#[derive(Clone, Debug, Default)]
pub struct EgressPolicy {
    private_networks: Vec<Network>,
}

impl EgressPolicy {
    /// Allows every public address and the addresses of these networks.
    pub fn with_private(private_networks: Vec<Network>) -> Self {
        Self { private_networks }
    }

    /// Connects to a server by its name or address. The error is the reason for the log.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let resolved = tokio::net::lookup_host((host, port)).await.map_err(|error| error.to_string())?;
        let mut why = "the name has no address".to_owned();
        for address in resolved.take(ADDRESSES_MAX) {
            match self.connect_to(address).await {
                Ok(stream) => return Ok(stream),
                Err(reason) => why = format!("{address}: {reason}"),
            }
        }
        Err(why)
    }

    async fn connect_to(&self, address: SocketAddr) -> Result<TcpStream, String> {
        if !self.allows(address.ip()) {
            return Err("the address is not public and not in release-private-networks".to_owned());
        }
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let own = stream.local_addr().map_err(|error| error.to_string())?.ip();
        if self.is_own(own, address.ip()) {
            return Err("the address is this machine's own and not in release-private-networks".to_owned());
        }
        Ok(stream)
    }

    /// Returns whether a connection from `own` leads to this machine's own address and no setting allows it: services that are not meant
    /// for others may listen there.
    fn is_own(&self, own: IpAddr, to: IpAddr) -> bool {
        own.to_canonical() == to.to_canonical() && !self.is_named(to)
    }

    fn allows(&self, address: IpAddr) -> bool {
        is_public(address.to_canonical()) || self.is_named(address)
    }

    fn is_named(&self, address: IpAddr) -> bool {
        self.private_networks.iter().any(|network| network.contains(&address.to_canonical()))
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !V4_NOT_PUBLIC.iter().any(|&(network, bits)| is_in_v4(address, network, bits)),
        IpAddr::V6(address) => {
            let (public, bits) = V6_PUBLIC;
            is_in_v6(address, public, bits)
                && !V6_NOT_PUBLIC.iter().any(|&(network, bits)| is_in_v6(address, network, bits))
        }
    }
}

fn is_in_v4(address: Ipv4Addr, network: [u8; 4], bits: u8) -> bool {
    let differing = address.to_bits() ^ u32::from_be_bytes(network);
    differing.leading_zeros() >= u32::from(bits)
}

fn is_in_v6(address: Ipv6Addr, network: [u16; 8], bits: u8) -> bool {
    let differing = address.to_bits() ^ Ipv6Addr::from(network).to_bits();
    differing.leading_zeros() >= u32::from(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_refused_in_every_notation() {
        let egress = EgressPolicy::default();
        for refused in [
            "127.0.0.1",
            "127.255.0.1",
            "0.0.0.0",
            "10.4.0.7",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.100.100.200",
            "169.254.169.254",
            "168.63.129.16",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.251",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2001:0:7f00:1::1",
            "2001:db8::1",
            "100::1",
        ] {
            assert!(!egress.allows(refused.parse().unwrap()), "{refused}");
        }
        for allowed in
            ["1.1.1.1", "140.82.121.4", "172.15.0.1", "172.32.0.1", "100.63.0.1", "2606:4700::1111", "::ffff:1.1.1.1"]
        {
            assert!(egress.allows(allowed.parse().unwrap()), "{allowed}");
        }
    }

    #[test]
    fn public_address_of_this_machine_is_refused() {
        let [own, other] = ["1.1.1.1", "1.0.0.1"].map(|address| address.parse::<IpAddr>().unwrap());
        assert!(EgressPolicy::default().is_own(own, own) && !EgressPolicy::default().is_own(own, other));
        assert!(EgressPolicy::default().is_own(own, "::ffff:1.1.1.1".parse().unwrap()));
        assert!(!EgressPolicy::with_private(vec!["1.1.1.1/32".parse().unwrap()]).is_own(own, own));
    }

    #[test]
    fn only_configured_private_networks_are_allowed() {
        let egress = EgressPolicy::with_private(vec!["10.4.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()]);
        for (address, is_allowed) in
            [("10.4.0.7", true), ("::ffff:10.4.0.7", true), ("10.5.0.7", false), ("fd12::1", true), ("fc00::1", false)]
        {
            assert_eq!(egress.allows(address.parse().unwrap()), is_allowed, "{address}");
        }
    }
}
