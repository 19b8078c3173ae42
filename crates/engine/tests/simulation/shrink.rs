//! Shrinks the script of a failing seed to the fewest parts with which the same oracle fails.

use std::collections::BTreeSet;

/// Most runs for one seed: a run takes about a second.
const RUNS_MAX: usize = 200;

/// Returns the smallest set of parts found for which `fails` still returns true. It must return true for all parts `0..parts`.
///
/// Removes halves first, then smaller pieces, and single parts last, until no single one can be removed.
pub(crate) fn shrink(parts: usize, mut fails: impl FnMut(&BTreeSet<usize>) -> bool) -> BTreeSet<usize> {
    let mut kept: Vec<usize> = (0..parts).collect();
    if fails(&BTreeSet::new()) {
        return BTreeSet::new();
    }
    let mut runs = 1;
    let mut piece = parts.div_ceil(2).max(1);
    loop {
        let mut is_smaller = false;
        let mut at = 0;
        while at < kept.len() && runs < RUNS_MAX {
            let end = (at + piece).min(kept.len());
            let fewer: BTreeSet<usize> = kept[..at].iter().chain(&kept[end..]).copied().collect();
            runs += 1;
            if !fewer.is_empty() && fails(&fewer) {
                kept = fewer.into_iter().collect();
                is_smaller = true;
            } else {
                at = end;
            }
        }
        if runs >= RUNS_MAX || (piece == 1 && !is_smaller) {
            return kept.into_iter().collect();
        }
        // Single parts are tried until none is left out: what one needed may be gone by now.
        piece = piece.div_ceil(2).max(1);
    }
}

#[test]
fn script_is_shrunk_to_the_parts_that_matter() {
    let needed = BTreeSet::from([3, 17, 41]);
    let mut runs = 0;
    let kept = shrink(60, |parts| {
        runs += 1;
        parts.is_superset(&needed)
    });
    assert_eq!(kept, needed);
    assert!(runs < 80, "{runs} runs");
}

#[test]
fn seed_that_fails_without_any_part_is_shrunk_to_none() {
    assert_eq!(shrink(60, |_| true), BTreeSet::new());
    assert_eq!(shrink(1, |parts| parts.contains(&0)), BTreeSet::from([0]));
}

#[test]
fn part_that_is_needed_only_by_another_is_removed_with_it() {
    // Part 5 fails alone; part 4 hides it unless part 6 is there, too.
    let fails = |parts: &BTreeSet<usize>| parts.contains(&5) && (!parts.contains(&4) || parts.contains(&6));
    assert_eq!(shrink(8, fails), BTreeSet::from([5]));
}
