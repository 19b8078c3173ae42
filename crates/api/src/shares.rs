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
mod tests;
