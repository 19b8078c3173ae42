use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;

use super::*;

const BEGIN: Timestamp = Timestamp::from_millis(1_000_000);

/// A clock that jumps to the deadline of a sleeper: nothing else happens meanwhile.
#[derive(Clone)]
struct JumpingClock(watch::Sender<Timestamp>);

impl Default for JumpingClock {
    fn default() -> Self {
        Self(watch::Sender::new(BEGIN))
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }
}

impl Runtime for JumpingClock {
    fn spawn(&self, _: &'static str, _: BoxFuture<'static, ()>) {}

    fn elapsed(&self) -> Duration {
        self.now().since(BEGIN)
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let now = self.0.clone();
        Box::pin(async move {
            now.send_modify(|now| *now = at.max(*now));
        })
    }
}

fn merged(clock: &JumpingClock, range: Range) -> Merged {
    Merged::new(Arc::new(clock.clone()), Arc::new(clock.clone()), range)
}

fn line(member: &str, at: i64) -> Read {
    let read = gpuaas_wire::session::JournalLine { at: Timestamp::from_millis(at), text: format!("{member}:{at}") };
    let position = LogPosition { at: read.at, lines: 1 };
    Read::Line(TimedLine::of_journal(member, "rke2.service", read, position))
}

fn lines(member: &'static str, at: impl IntoIterator<Item = i64>) -> Vec<Read> {
    at.into_iter().map(|at| line(member, at)).collect()
}

async fn texts(mut merged: Merged, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count
        && let Some(line) = merged.next().await
    {
        texts.push(line.line.text);
    }
    texts
}

#[tokio::test]
async fn last_lines_are_those_of_all_members_together() {
    let clock = JumpingClock::default();
    let mut merged = merged(&clock, Range { tail: Some(3), ..Range::default() });
    merged.add(stream::iter(lines("a", [1, 4, 6])).boxed());
    merged.add(stream::iter(lines("b", [2, 3, 5])).boxed());
    assert_eq!(texts(merged, 10).await, ["a:4", "b:5", "a:6"]);
    assert_eq!(clock.now(), BEGIN, "ended sources are waited for");
}

#[tokio::test]
async fn member_that_never_answers_holds_the_last_lines_back_for_its_limit_only() {
    let clock = JumpingClock::default();
    let mut merged = merged(&clock, Range { tail: Some(2), follow: true, since: None });
    merged.add(stream::pending().boxed());
    let caught_up = lines("b", [1, 2, 3]).into_iter().chain([Read::CaughtUp]);
    merged.add(stream::iter(caught_up).chain(stream::pending()).boxed());
    assert_eq!(texts(merged, 2).await, ["b:2", "b:3"]);
    let limit = BEGIN.plus(merge::HISTORY_WAIT_MAX);
    assert!(clock.now() >= limit && clock.now() <= limit.plus(merge::REORDER_WAIT_MAX), "{}", clock.now());
}

#[tokio::test]
async fn problem_of_one_member_is_a_line_and_the_others_go_on() {
    let clock = JumpingClock::default();
    let mut merged = merged(&clock, Range { follow: true, ..Range::default() });
    let problem = Read::Problem(TimedLine::problem(BEGIN, Some("a"), "unreachable"));
    merged.add(stream::iter([problem]).chain(stream::pending()).boxed());
    let follows = lines("b", [1, 2]).into_iter().chain([Read::CaughtUp]).chain(lines("b", [2_000_000, 2_000_001]));
    merged.add(stream::iter(follows).chain(stream::pending()).boxed());
    assert_eq!(texts(merged, 5).await, ["b:1", "b:2", "unreachable", "b:2000000", "b:2000001"]);
}

#[tokio::test]
async fn noisy_member_neither_starves_the_others_nor_is_read_ahead_of_the_client() {
    let clock = JumpingClock::default();
    let mut merged = merged(&clock, Range { follow: true, ..Range::default() });
    let read = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = read.clone();
    let flood = stream::iter([Read::CaughtUp]).chain(stream::repeat_with(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        line("noisy", 0)
    }));
    merged.add(flood.boxed());
    let quiet = [Read::CaughtUp, line("quiet", 5_000_000)];
    merged.add(stream::iter(quiet).chain(stream::pending()).boxed());
    let mut lines = 0;
    loop {
        let line = merged.next().await.expect("endless");
        if line.line.text == "quiet:5000000" {
            break;
        }
        lines += 1;
        clock.0.send_modify(|now| *now = now.plus(Duration::from_millis(1)));
        assert!(lines < 10_000, "the quiet member is starved");
    }
    let ahead = read.load(std::sync::atomic::Ordering::Relaxed) - lines;
    assert!(ahead <= merge::REORDER_LINES_MAX, "{ahead} lines are read ahead");
}
