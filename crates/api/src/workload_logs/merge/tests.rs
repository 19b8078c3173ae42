use gpuaas_test_support::Chance;

use super::*;

const BEGIN: Timestamp = Timestamp::from_millis(1_000_000);

fn after(millis: u64) -> Timestamp {
    BEGIN.plus(Duration::from_millis(millis))
}

fn sources(count: usize) -> Merge<String> {
    let mut merge = Merge::new(BEGIN);
    for _ in 0..count {
        merge.add();
    }
    merge
}

fn write(merge: &mut Merge<String>, source: SourceNumber, at: u64, now: Timestamp) {
    merge.push(source, after(at), 10, now, format!("{source}:{at}"));
}

/// Takes every line that need not wait at `now`.
fn taken(merge: &mut Merge<String>, now: Timestamp) -> Vec<String> {
    std::iter::from_fn(|| match merge.next(now) {
        Next::Line(line) => Some(line),
        Next::Wait(_) | Next::Ended => None,
    })
    .collect()
}

#[test]
fn ended_sources_are_merged_by_time_in_the_order_of_each_source() {
    for seed in 0..200 {
        let mut chance = Chance::of_seed(seed);
        let mut merge = sources(4);
        let mut expected = Vec::new();
        for source in 0..4 {
            let mut at = 0;
            for _ in 0..chance.below(50) {
                at += chance.below(20);
                write(&mut merge, source, at, BEGIN);
                expected.push((at, source));
            }
            merge.end(source);
        }
        expected.sort_by_key(|(at, source)| (*at, *source));
        let expected: Vec<String> = expected.into_iter().map(|(at, source)| format!("{source}:{at}")).collect();
        assert_eq!(taken(&mut merge, BEGIN), expected, "seed {seed}");
        assert_eq!(merge.next(BEGIN), Next::Ended, "seed {seed}");
    }
}

#[test]
fn lines_that_arrive_within_the_wait_are_in_order_whatever_the_delays() {
    for seed in 0..200 {
        let mut chance = Chance::of_seed(seed);
        let mut merge = sources(3);
        (0..3).for_each(|source| merge.caught_up(source, false));
        let mut arrivals = Vec::new();
        for source in 0..3 {
            let (mut at, mut arrives) = (0, 0);
            for _ in 0..40 {
                at += chance.between(1, 60);
                arrives = arrives.max(at + chance.below(150));
                arrivals.push((arrives, source, at));
            }
        }
        arrivals.sort_unstable();
        let (mut out, mut arrivals) = (Vec::new(), arrivals.into_iter().peekable());
        for now in 0..6_000 {
            while let Some((_, source, at)) = arrivals.next_if(|(arrives, ..)| *arrives <= now) {
                merge.push(source, after(at), 10, after(now), format!("{at:06}"));
            }
            out.extend(taken(&mut merge, after(now)));
        }
        assert_eq!(out.len(), 120, "seed {seed}");
        assert!(out.is_sorted(), "seed {seed}: {out:?}");
    }
}

#[test]
fn unopened_source_holds_the_others_back_no_longer_than_its_limit() {
    let mut merge = sources(2);
    write(&mut merge, 0, 1, BEGIN);
    let limit = BEGIN.plus(HISTORY_WAIT_MAX);
    assert_eq!(merge.next(BEGIN), Next::Wait(Some(limit)));
    assert_eq!(merge.history_over(BEGIN), Err(limit));
    assert_eq!(taken(&mut merge, limit), ["0:1"]);
    assert_eq!(merge.history_over(limit), Ok(()));
    // From now on, each line waits for the short time only.
    write(&mut merge, 0, 2, limit);
    let short = limit.plus(REORDER_WAIT_MAX);
    assert_eq!(merge.next(limit), Next::Wait(Some(short)));
    assert_eq!(taken(&mut merge, short), ["0:2"]);
}

#[test]
fn quiet_source_delays_a_line_by_the_reorder_wait_and_a_prompt_one_not_at_all() {
    let mut merge = sources(2);
    merge.caught_up(0, false);
    merge.caught_up(1, false);
    write(&mut merge, 0, 1, BEGIN);
    assert_eq!(merge.next(BEGIN), Next::Wait(Some(BEGIN.plus(REORDER_WAIT_MAX))));
    assert_eq!(taken(&mut merge, BEGIN.plus(REORDER_WAIT_MAX)), ["0:1"]);
    merge.caught_up(1, true);
    write(&mut merge, 0, 2, after(5_000));
    assert_eq!(taken(&mut merge, after(5_000)), ["0:2"]);
}

#[test]
fn flood_with_forged_times_does_not_starve_the_others() {
    let mut merge = sources(2);
    (0..2).for_each(|source| merge.caught_up(source, false));
    write(&mut merge, 1, 100, after(100));
    let mut passed = None;
    for now in 100..10_000 {
        // Every line of the flood claims to be older than all others.
        while merge.has_room(0) {
            merge.push(0, Timestamp::from_millis(0), 1_000, after(now), "flood".to_owned());
        }
        for _ in 0..100 {
            if let Next::Line(line) = merge.next(after(now))
                && line == "1:100"
            {
                passed.get_or_insert(now);
            }
        }
    }
    let limit = u64::try_from(HOLD_MAX.as_millis()).unwrap();
    assert!(passed.is_some_and(|at| at <= 100 + limit + 1), "{passed:?}");
}

#[test]
fn history_of_one_source_may_pass_lines_that_wait_for_long() {
    let mut merge = sources(2);
    merge.caught_up(1, false);
    write(&mut merge, 1, 900, BEGIN);
    for at in 0..100 {
        write(&mut merge, 0, at, BEGIN);
    }
    let read = taken(&mut merge, after(60_000));
    assert_eq!((read.len(), read[0].as_str(), read[100].as_str()), (101, "0:0", "1:900"));
}

#[test]
fn memory_is_bounded_and_shared_and_a_full_share_does_not_wait() {
    for count in [1, 2, 64] {
        let mut merge = sources(count);
        (0..count).for_each(|source| merge.caught_up(source, false));
        let line = 16 * 1_024;
        for source in 0..count {
            while merge.has_room(source) {
                merge.push(source, BEGIN, line, BEGIN, String::new());
            }
        }
        let held: usize = merge.sources.values().map(|source| source.bytes).sum();
        assert!(held <= REORDER_BYTES_MAX + count * line, "{count} sources hold {held} bytes");
        for source in 0..count {
            assert!(merge.sources[&source].bytes >= REORDER_BYTES_MAX / count / 2, "{source} of {count}");
        }
        let mut merge = sources(count);
        for source in 0..count {
            while merge.has_room(source) {
                merge.push(source, BEGIN, 0, BEGIN, String::new());
            }
        }
        assert!(merge.waiting() <= REORDER_LINES_MAX + count, "{count} sources hold {} lines", merge.waiting());
    }
    let mut merge = sources(2);
    (0..2).for_each(|source| merge.caught_up(source, false));
    while merge.has_room(0) {
        merge.push(0, BEGIN, 1_024, BEGIN, String::new());
    }
    assert!(matches!(merge.next(BEGIN), Next::Line(_)), "a full share waits for a quiet source");
    assert_eq!(merge.next(BEGIN), Next::Wait(Some(BEGIN.plus(REORDER_WAIT_MAX))), "a share with room does not");
}
