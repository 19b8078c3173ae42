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
pub struct ShareLimits {
    /// Open shares in total.
    pub total: usize,
    /// Open shares of one IPv4 address or one IPv6 site.
    pub per_address: usize,
}

/// Open shares. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shares {
    limits: ShareLimits,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    last_number: u64,
    /// Ordered by the time of taking.
    by_address: HashMap<PeerSite, BTreeMap<u64, Holder>>,
}

#[derive(Debug)]
struct Holder {
    activity: Activity,
    displaced: CancellationToken,
}

/// Reason why no share is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// All shares are in use, and no address holds more than this one would.
    #[error("the total limit is reached")]
    TotalReached,
    /// The address holds as many shares as it may.
    #[error("the limit of this address is reached")]
    AddressReached,
}

/// Observed behavior of a connection, which decides how soon it is displaced. Requests carry it as an extension. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Activity(Arc<ActivityState>);

#[derive(Debug, Default)]
struct ActivityState {
    is_authenticated: AtomicBool,
    requests: AtomicUsize,
}

impl Activity {
    /// Records that the connection carried a request with a valid token.
    pub fn mark_authenticated(&self) {
        self.0.is_authenticated.store(true, Ordering::Relaxed);
    }

    /// Counts a request as in progress until the returned value is dropped.
    pub fn begin_request(&self) -> RequestGuard {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard(self.clone())
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
pub struct RequestGuard(Activity);

impl Drop for RequestGuard {
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
    const LOWEST: Self = Self { is_authenticated: false, is_busy: false };
}

impl Shares {
    /// Returns limits without open shares.
    pub fn new(max: ShareLimits) -> Self {
        Self { limits: max, open: Arc::default() }
    }

    /// Takes a share for an address. The share ends when it is dropped, or is displaced for another address ([`Share::displaced`]).
    pub fn take(&self, from: PeerSite) -> Result<Share, ShareError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.by_address.get(&from).map_or(0, BTreeMap::len);
        if own >= self.limits.per_address {
            return Err(ShareError::AddressReached);
        }
        if open.total >= self.limits.total {
            open.displace_for(own)?;
        }
        (open.total, open.last_number) = (open.total + 1, open.last_number + 1);
        let (number, activity, displaced) = (open.last_number, Activity::default(), CancellationToken::new());
        let holder = Holder { activity: activity.clone(), displaced: displaced.clone() };
        open.by_address.entry(from).or_default().insert(number, holder);
        Ok(Share { open: self.open.clone(), from, number, activity, displaced })
    }
}

impl Open {
    /// Displaces a share of an address that holds more than `own`. While unauthenticated shares exist, only these are displaced, regardless
    /// of how many addresses they come from.
    fn displace_for(&mut self, own: usize) -> Result<(), ShareError> {
        let (rank, number, from, most) = match self.next_to_displace(|rank| !rank.is_authenticated) {
            Some(unauthenticated) => unauthenticated,
            None => self.next_to_displace(|_| true).ok_or(ShareError::TotalReached)?,
        };
        // On a tie, an idle unauthenticated share is displaced for the new one: the new connection's peer is more likely still waiting, and
        // had no time to authenticate.
        let is_displaced = most >= own + 2 || (most == own + 1 && rank == Rank::LOWEST);
        if !is_displaced {
            return Err(ShareError::TotalReached);
        }
        if let Some(holder) = self.remove(from, number) {
            holder.displaced.cancel();
        }
        Ok(())
    }

    /// Returns the share to displace first among the addresses with the most counted shares, and the number of shares per such address.
    fn next_to_displace(&self, counts: impl Fn(Rank) -> bool) -> Option<(Rank, u64, PeerSite, usize)> {
        let first_of_address = |(from, shares): (&PeerSite, &BTreeMap<u64, Holder>)| {
            let ranks = shares.iter().map(|(number, holder)| (holder.activity.rank(), *number));
            let counted: Vec<(Rank, u64)> = ranks.filter(|(rank, _)| counts(*rank)).collect();
            counted.iter().min().map(|(rank, number)| (*rank, *number, *from, counted.len()))
        };
        let candidates = self.by_address.iter().filter_map(first_of_address);
        candidates.max_by_key(|(rank, number, _, count)| (*count, std::cmp::Reverse((*rank, *number))))
    }

    fn remove(&mut self, from: PeerSite, number: u64) -> Option<Holder> {
        let shares = self.by_address.get_mut(&from)?;
        let removed = shares.remove(&number);
        if shares.is_empty() {
            self.by_address.remove(&from);
        }
        self.total -= usize::from(removed.is_some());
        removed
    }
}

/// A share, held while the counted object is open.
#[derive(Debug)]
pub struct Share {
    open: Arc<Mutex<Open>>,
    from: PeerSite,
    number: u64,
    activity: Activity,
    displaced: CancellationToken,
}

impl Share {
    /// Returns the observed behavior of the holder.
    pub fn activity(&self) -> &Activity {
        &self.activity
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

    const MAX: ShareLimits = ShareLimits { total: 64, per_address: 16 };

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
    fn address_is_limited_and_dropped_shares_are_free_again() {
        let shares = Shares::new(MAX);
        let mut held = take_of(&shares, 1, MAX.per_address);
        assert_eq!(shares.take(address(1)).err(), Some(ShareError::AddressReached));
        assert!(shares.take(address(2)).is_ok(), "another address is served");
        held.pop();
        assert!(shares.take(address(1)).is_ok());
        drop(held);
        let open = shares.open.lock().unwrap();
        assert!(open.by_address.is_empty() && open.total == 0, "addresses without shares are dropped");
    }

    #[test]
    fn addresses_of_an_ipv6_site_share_one_limit() {
        let shares = Shares::new(MAX);
        let of = |network: u16, host: u16| PeerSite::of([0x2001, 0xdb8, 7, network, 0, 0, 0, host].into());
        let held: Vec<Share> =
            (0..MAX.per_address as u16).map(|number| shares.take(of(number, number)).expect("a share")).collect();
        assert_eq!(shares.take(of(7, 7_000)).err(), Some(ShareError::AddressReached));
        drop(held);
    }

    #[test]
    fn address_with_the_most_shares_loses_them_to_others() {
        let shares = Shares::new(MAX);
        let held: Vec<Share> = (1..=4).flat_map(|from| take_of(&shares, from, 16)).collect();
        let newcomers = take_of(&shares, 9, 12);
        assert_eq!(
            (displaced(&held).len(), displaced(&newcomers)),
            (12, vec![]),
            "a fifth address gets as many as the others"
        );
        assert_eq!(shares.open.lock().unwrap().total, MAX.total, "the total limit holds");
        drop(held);
        assert_eq!(shares.open.lock().unwrap().total, 12, "displaced shares are not released twice");
    }

    #[test]
    fn unauthenticated_idle_and_older_shares_are_displaced_first() {
        let shares = Shares::new(MAX);
        let greediest = take_of(&shares, 1, 16);
        let _others: Vec<Share> = (2..=49).flat_map(|from| take_of(&shares, from, 1)).collect();
        greediest[..2].iter().for_each(|share| share.activity().mark_authenticated());
        let _begun = [0, 2].map(|at: usize| greediest[at].activity().begin_request());
        let mut order = Vec::new();
        let newcomers = (100..113).map(|from| {
            let share = shares.take(address(from)).expect("the address with the most shares loses one");
            order.extend(displaced(&greediest).into_iter().find(|at| !order.contains(at)));
            share
        });
        let newcomers: Vec<Share> = newcomers.collect();
        assert!(displaced(&newcomers).is_empty());
        assert_eq!(order, (3..16).collect::<Vec<_>>(), "unauthenticated shares, idle ones first, by age");
        let idle = shares.take(address(113)).expect("an unauthenticated share is displaced");
        assert!(displaced(&greediest).len() == 13, "an idle share of another address is displaced before a busy one");
        drop(idle);
    }

    #[test]
    fn unauthenticated_shares_displace_no_authenticated_one() {
        let shares = Shares::new(MAX);
        let office = take_of(&shares, 1, 12);
        office.iter().for_each(|share| share.activity().mark_authenticated());
        let mut unauthenticated = Vec::new();
        for round in 0..4 {
            for from in 10..40 {
                unauthenticated.extend(shares.take(address(from)).ok().inspect(|_| assert!(round < 4)));
            }
        }
        assert_eq!(displaced(&office), Vec::<usize>::new());
    }

    #[test]
    fn on_a_tie_only_an_idle_unauthenticated_share_is_displaced() {
        let shares = Shares::new(MAX);
        let held: Vec<Share> = (0..MAX.total).map(|from| shares.take(address(from)).expect("a share")).collect();
        held.iter().skip(1).for_each(|share| share.activity().mark_authenticated());
        let first = shares.take(address(100)).expect("the unauthenticated share was displaced");
        assert_eq!(displaced(&held), [0]);
        first.activity().mark_authenticated();
        assert_eq!(shares.take(address(101)).err(), Some(ShareError::TotalReached), "authenticated shares stay");
        assert_eq!(displaced(&held), [0]);
    }
}
