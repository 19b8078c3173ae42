//! Limits how many of something (for example connections) are open, in total and per address.
//!
//! Guarantees: no address holds more than its limit. When all shares are taken, the address with the most loses one to an address with
//! fewer: first a share that never carried an authenticated request, among these one that is idle, among these the oldest. So addresses
//! that hold many cannot lock out addresses that hold few.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use gpuaas_model::PeerSite;
use tokio_util::sync::CancellationToken;

/// Limits of shares.
#[derive(Clone, Copy, Debug)]
pub struct SharesMax {
    /// Open shares in total.
    pub all: usize,
    /// Open shares of one IPv4 address or one IPv6 site.
    pub per_address: usize,
}

/// Open shares. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shares {
    max: SharesMax,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    taken: u64,
    /// Ordered by the time of taking.
    by_address: HashMap<PeerSite, BTreeMap<u64, Holder>>,
}

#[derive(Debug)]
struct Holder {
    standing: Standing,
    displaced: CancellationToken,
}

/// Reason why no share is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoShare {
    /// All shares are in use, and no address holds more than this one would.
    #[error("all are in use")]
    OfAll,
    /// The address holds as many shares as it may.
    #[error("this address holds as many as it may")]
    OfAddress,
}

/// Observed behavior of a connection, which decides how soon it is displaced. Requests carry it as an extension. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Standing(Arc<Marks>);

#[derive(Debug, Default)]
struct Marks {
    is_authenticated: AtomicBool,
    requests: AtomicUsize,
}

impl Standing {
    /// Records that the connection carried a request with a valid token.
    pub fn authenticate(&self) {
        self.0.is_authenticated.store(true, Ordering::Relaxed);
    }

    /// Counts a request as in progress until the returned value is dropped.
    pub fn begin(&self) -> Begun {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        Begun(self.clone())
    }

    fn rank(&self) -> Rank {
        Rank {
            is_authenticated: self.0.is_authenticated.load(Ordering::Relaxed),
            is_busy: self.0.requests.load(Ordering::Relaxed) > 0,
        }
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct Begun(Standing);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Order of displacement, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_authenticated: bool,
    is_busy: bool,
}

impl Rank {
    const STRANGER: Self = Self { is_authenticated: false, is_busy: false };
}

impl Shares {
    /// Returns limits without open shares.
    pub fn new(max: SharesMax) -> Self {
        Self { max, open: Arc::default() }
    }

    /// Takes a share for an address. The share ends when it is dropped, or is displaced for another address ([`Share::displaced`]).
    pub fn take(&self, from: PeerSite) -> Result<Share, NoShare> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.by_address.get(&from).map_or(0, BTreeMap::len);
        if own >= self.max.per_address {
            return Err(NoShare::OfAddress);
        }
        if open.all >= self.max.all {
            open.displace_for(own)?;
        }
        (open.all, open.taken) = (open.all + 1, open.taken + 1);
        let (number, standing, displaced) = (open.taken, Standing::default(), CancellationToken::new());
        let holder = Holder { standing: standing.clone(), displaced: displaced.clone() };
        open.by_address.entry(from).or_default().insert(number, holder);
        Ok(Share { open: self.open.clone(), from, number, standing, displaced })
    }
}

impl Open {
    /// Displaces a share of an address that holds more than `own`. While unauthenticated shares exist, only these are displaced, regardless
    /// of how many addresses they come from.
    fn displace_for(&mut self, own: usize) -> Result<(), NoShare> {
        let (rank, number, from, most) = match self.of_greediest(|rank| !rank.is_authenticated) {
            Some(stranger) => stranger,
            None => self.of_greediest(|_| true).ok_or(NoShare::OfAll)?,
        };
        // On a tie, an idle unauthenticated share is displaced for the new one: the new connection's peer is more likely still waiting, and
        // had no time to authenticate.
        let gives_way = most >= own + 2 || (most == own + 1 && rank == Rank::STRANGER);
        if !gives_way {
            return Err(NoShare::OfAll);
        }
        if let Some(holder) = self.remove(from, number) {
            holder.displaced.cancel();
        }
        Ok(())
    }

    /// Returns the share to displace first among the addresses with the most counted shares, and the number of shares per such address.
    fn of_greediest(&self, counts: impl Fn(Rank) -> bool) -> Option<(Rank, u64, PeerSite, usize)> {
        let of_address = |(from, held): (&PeerSite, &BTreeMap<u64, Holder>)| {
            let ranks = held.iter().map(|(number, holder)| (holder.standing.rank(), *number));
            let counted: Vec<(Rank, u64)> = ranks.filter(|(rank, _)| counts(*rank)).collect();
            counted.iter().min().map(|(rank, number)| (*rank, *number, *from, counted.len()))
        };
        let candidates = self.by_address.iter().filter_map(of_address);
        candidates.max_by_key(|(rank, number, _, count)| (*count, std::cmp::Reverse((*rank, *number))))
    }

    fn remove(&mut self, from: PeerSite, number: u64) -> Option<Holder> {
        let held = self.by_address.get_mut(&from)?;
        let removed = held.remove(&number);
        if held.is_empty() {
            self.by_address.remove(&from);
        }
        self.all -= usize::from(removed.is_some());
        removed
    }
}

/// A share, held while the counted object is open.
#[derive(Debug)]
pub struct Share {
    open: Arc<Mutex<Open>>,
    from: PeerSite,
    number: u64,
    standing: Standing,
    displaced: CancellationToken,
}

impl Share {
    /// Returns the observed behavior of the holder.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns the token that is cancelled when the share is displaced. The holder then closes the counted object.
    pub fn displaced(&self) -> &CancellationToken {
        &self.displaced
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(self.from, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: SharesMax = SharesMax { all: 64, per_address: 16 };

    fn address(number: usize) -> PeerSite {
        PeerSite::of([192, 0, 2, u8::try_from(number).unwrap()].into())
    }

    fn take_of(shares: &Shares, from: usize, number: usize) -> Vec<Share> {
        (0..number).map(|_| shares.take(address(from)).expect("a share")).collect()
    }

    fn displaced(held: &[Share]) -> Vec<usize> {
        held.iter().enumerate().filter(|(_, share)| share.displaced().is_cancelled()).map(|(at, _)| at).collect()
    }

    #[test]
    fn one_address_never_holds_all_and_gets_back_what_it_gives_back() {
        let shares = Shares::new(MAX);
        let mut held = take_of(&shares, 1, MAX.per_address);
        assert_eq!(shares.take(address(1)).err(), Some(NoShare::OfAddress));
        assert!(shares.take(address(2)).is_ok(), "another address is served");
        held.pop();
        assert!(shares.take(address(1)).is_ok());
        drop(held);
        let open = shares.open.lock().unwrap();
        assert!(open.by_address.is_empty() && open.all == 0, "nothing is remembered of who is gone");
    }

    #[test]
    fn host_with_a_site_full_of_addresses_has_one_share() {
        let shares = Shares::new(MAX);
        let of = |network: u16, host: u16| PeerSite::of([0x2001, 0xdb8, 7, network, 0, 0, 0, host].into());
        let held: Vec<Share> =
            (0..MAX.per_address as u16).map(|number| shares.take(of(number, number)).expect("a share")).collect();
        assert_eq!(shares.take(of(7, 7_000)).err(), Some(NoShare::OfAddress));
        drop(held);
    }

    #[test]
    fn address_with_the_most_gives_way_to_addresses_with_fewer() {
        let shares = Shares::new(MAX);
        let held: Vec<Share> = (1..=4).flat_map(|from| take_of(&shares, from, 16)).collect();
        let newcomers = take_of(&shares, 9, 12);
        assert_eq!(
            (displaced(&held).len(), displaced(&newcomers)),
            (12, vec![]),
            "a fifth, as much as the others have"
        );
        assert_eq!(shares.open.lock().unwrap().all, MAX.all, "there are no more than there may be");
        drop(held);
        assert_eq!(shares.open.lock().unwrap().all, 12, "what was taken back is not given back twice");
    }

    #[test]
    fn strangers_give_way_before_the_known_idle_ones_before_busy_ones_and_older_ones_before_newer_ones() {
        let shares = Shares::new(MAX);
        let greediest = take_of(&shares, 1, 16);
        let _others: Vec<Share> = (2..=49).flat_map(|from| take_of(&shares, from, 1)).collect();
        greediest[..2].iter().for_each(|share| share.standing().authenticate());
        let _begun = [0, 2].map(|at: usize| greediest[at].standing().begin());
        let mut gone = Vec::new();
        let newcomers = (100..113).map(|from| {
            let share = shares.take(address(from)).expect("the greediest gives way");
            gone.extend(displaced(&greediest).into_iter().find(|at| !gone.contains(at)));
            share
        });
        let newcomers: Vec<Share> = newcomers.collect();
        assert!(displaced(&newcomers).is_empty());
        assert_eq!(gone, (3..16).collect::<Vec<_>>(), "strangers, idle ones first, by age");
        let idle = shares.take(address(113)).expect("a stranger gives way");
        assert!(displaced(&greediest).len() == 13, "of those with one each an idle one before the busy one");
        drop(idle);
    }

    #[test]
    fn strangers_of_many_addresses_push_out_nobody_with_a_good_token() {
        let shares = Shares::new(MAX);
        let office = take_of(&shares, 1, 12);
        office.iter().for_each(|share| share.standing().authenticate());
        let mut strangers = Vec::new();
        for round in 0..4 {
            for from in 10..40 {
                strangers.extend(shares.take(address(from)).ok().inspect(|_| assert!(round < 4)));
            }
        }
        assert_eq!(displaced(&office), Vec::<usize>::new());
    }

    #[test]
    fn between_equals_only_a_stranger_that_carries_nothing_gives_way() {
        let shares = Shares::new(MAX);
        let held: Vec<Share> = (0..MAX.all).map(|from| shares.take(address(from)).expect("a share")).collect();
        held.iter().skip(1).for_each(|share| share.standing().authenticate());
        let first = shares.take(address(100)).expect("a stranger gave way");
        assert_eq!(displaced(&held), [0]);
        first.standing().authenticate();
        assert_eq!(shares.take(address(101)).err(), Some(NoShare::OfAll), "those who are known stay");
        assert_eq!(displaced(&held), [0]);
    }
}
