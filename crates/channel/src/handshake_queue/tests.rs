use futures::FutureExt;

use super::*;

fn site(number: u8) -> PeerSite {
    PeerSite::of([192, 0, 2, number].into())
}

/// Takes as many permits of a site as it gets without waiting.
fn taken(turns: &HandshakeQueue, of: PeerSite, now: Instant) -> Vec<Permit<'_>> {
    std::iter::from_fn(|| turns.enter(of, now).now_or_never().flatten()).collect()
}

#[test]
fn one_site_never_gets_all_permits() {
    let (turns, now) = (HandshakeQueue::default(), Instant::now());
    let greedy = taken(&turns, site(1), now);
    assert_eq!(greedy.len(), RUNNING_PER_SITE_MAX);
    assert!(turns.enter(site(2), now).now_or_never().flatten().is_some());
    drop(greedy);
    assert!(turns.0.lock().unwrap().sites.is_empty(), "no entry is left of a site without handshakes");
}

#[test]
fn next_permit_goes_to_the_newest_waiter_of_the_site_with_the_fewest() {
    let (turns, now) = (HandshakeQueue::default(), Instant::now());
    let mut held: Vec<_> = (1..=4).flat_map(|number| taken(&turns, site(number), now)).collect();
    assert_eq!(held.len(), RUNNING_MAX);
    let (mut older, mut newer) = (Box::pin(turns.enter(site(9), now)), Box::pin(turns.enter(site(9), now)));
    assert!((&mut older).now_or_never().is_none() && (&mut newer).now_or_never().is_none());
    // From the site whose permits become free, and newer than both.
    let mut greedy: Vec<_> = (0..100).map(|_| Box::pin(turns.enter(site(4), now))).collect();
    assert!(greedy.iter_mut().all(|waits| waits.now_or_never().is_none()));
    held.pop();
    let newest = (&mut newer).now_or_never().flatten();
    assert!(
        newest.is_some() && (&mut older).now_or_never().is_none(),
        "the newest waiter of the site without handshakes"
    );
    held.pop();
    let older = (&mut older).now_or_never().flatten();
    assert!(older.is_some() && greedy.iter_mut().all(|waits| waits.now_or_never().is_none()));
}

#[test]
fn permit_is_preempted_only_after_its_guaranteed_time() {
    let (turns, now) = (HandshakeQueue::default(), Instant::now());
    let greedy: Vec<_> = (1..=4).flat_map(|number| taken(&turns, site(number), now)).collect();
    let displaced = || greedy.iter().filter(|turn| turn.preempted().is_cancelled()).count();
    let mut early = Box::pin(turns.enter(site(9), now + PREEMPT_AFTER / 2));
    assert!((&mut early).now_or_never().is_none());
    assert_eq!(displaced(), 0, "nothing is preempted before its guaranteed time");
    assert!(greedy[0].is_wanted());
    let mut late = Box::pin(turns.enter(site(9), now + PREEMPT_AFTER));
    assert!((&mut late).now_or_never().is_none());
    assert_eq!(displaced(), 1);
    drop((early, late));
    assert!(!greedy[0].is_wanted(), "waiters that gave up count no more");
}

#[test]
fn full_queue_drops_the_oldest_waiter_of_the_largest_site() {
    let (turns, now) = (HandshakeQueue::default(), Instant::now());
    let _held: Vec<_> = (1..=4).flat_map(|number| taken(&turns, site(number), now)).collect();
    let mut crowd: Vec<_> = (0..WAITING_PER_SITE_MAX + 1).map(|_| Box::pin(turns.enter(site(5), now))).collect();
    assert!(crowd.iter_mut().all(|waits| waits.now_or_never().is_none()));
    assert!(matches!((&mut crowd[0]).now_or_never(), Some(None)), "the site has its share of the queue");
    assert!((&mut crowd[1]).now_or_never().is_none());
    let mut others: Vec<_> = (0..WAITING_MAX - WAITING_PER_SITE_MAX + 1)
        .map(|number| Box::pin(turns.enter(site(u8::try_from(6 + number % 200).unwrap()), now)))
        .collect();
    assert!(others.iter_mut().all(|waits| waits.now_or_never().is_none()));
    assert!(matches!((&mut crowd[1]).now_or_never(), Some(None)), "the largest site loses its oldest waiter");
    drop((crowd, others));
    assert_eq!(turns.0.lock().unwrap().waiting, 0);
}

#[test]
fn permit_of_a_dropped_waiter_goes_to_the_next() {
    let (turns, now) = (HandshakeQueue::default(), Instant::now());
    let mut held = taken(&turns, site(1), now);
    let mut first = Box::pin(turns.enter(site(1), now));
    let mut second = Box::pin(turns.enter(site(1), now));
    assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
    held.pop();
    drop(second);
    assert!(first.now_or_never().flatten().is_some(), "the permit is lost");
}
