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
