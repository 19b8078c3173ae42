//! How many connections are open, and how many of them one address holds: never all.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use gpuaas_model::PeerSite;

/// Connections at once.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;
/// Connections at once from one address, of IPv6 from one site: a sixteenth of all. Behind either may be a whole office; HTTP/2 clients need
/// one each.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = 256;

/// Connections that are open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: HashMap<PeerSite, usize>,
}

/// Why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoShare {
    /// All are in use.
    #[error("too many connections")]
    OfAll,
    /// Those that one address may have are in use.
    #[error("too many connections from one address")]
    OfAddress,
}

impl Shares {
    /// A share for a connection from that address; it ends with what is returned.
    pub(crate) fn take(&self, from: PeerSite) -> Result<Share, NoShare> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.all >= CONNECTIONS_MAX {
            return Err(NoShare::OfAll);
        }
        let of_address = open.by_address.entry(from).or_default();
        if *of_address >= CONNECTIONS_PER_ADDRESS_MAX {
            return Err(NoShare::OfAddress);
        }
        *of_address += 1;
        open.all += 1;
        Ok(Share { shares: self.clone(), from })
    }
}

/// Held by a connection while it is open.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    from: PeerSite,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.shares.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.all -= 1;
        if let Some(of_address) = open.by_address.get_mut(&self.from) {
            *of_address -= 1;
            if *of_address == 0 {
                open.by_address.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> PeerSite {
        PeerSite::of([192, 0, 2, u8::try_from(number).unwrap()].into())
    }

    #[test]
    fn one_address_never_holds_all_connections_and_gets_back_what_it_gives_back() {
        let shares = Shares::default();
        let mut held: Vec<Share> =
            (0..CONNECTIONS_PER_ADDRESS_MAX).map(|_| shares.take(address(1)).expect("a share")).collect();
        assert_eq!(shares.take(address(1)).err(), Some(NoShare::OfAddress));
        assert!(shares.take(address(2)).is_ok(), "another address is served");
        held.pop();
        assert!(shares.take(address(1)).is_ok());
        drop(held);
        assert!(shares.0.lock().unwrap().by_address.is_empty(), "nothing is remembered of who is gone");
    }

    #[test]
    fn a_host_with_a_site_full_of_addresses_has_one_share() {
        let shares = Shares::default();
        let of = |network: u16, host: u16| PeerSite::of([0x2001, 0xdb8, 7, network, 0, 0, 0, host].into());
        let held: Vec<Share> = (0..CONNECTIONS_PER_ADDRESS_MAX as u16)
            .map(|number| shares.take(of(number, number)).expect("a share"))
            .collect();
        assert_eq!(shares.take(of(7, 7_000)).err(), Some(NoShare::OfAddress));
        drop(held);
    }

    #[test]
    fn there_are_no_more_connections_than_there_may_be() {
        let shares = Shares::default();
        let held = (0..CONNECTIONS_MAX).map(|number| shares.take(address(number % 200)).expect("a share"));
        let held: Vec<Share> = held.collect();
        assert_eq!(shares.take(address(201)).err(), Some(NoShare::OfAll));
        drop(held);
        assert!(shares.take(address(201)).is_ok());
    }
}
