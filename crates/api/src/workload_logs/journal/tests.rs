use std::{collections::VecDeque, sync::Arc, sync::Mutex};

use futures::{FutureExt, stream};
use gpuaas_model::{Code, Coded};

use super::*;

type Answer = Result<Vec<Result<JournalLine, String>>, CommandError>;

/// A node that answers as scripted, and then no more.
struct Scripted {
    answers: VecDeque<Answer>,
    requests: Arc<Mutex<Vec<JournalRequest>>>,
}

#[async_trait]
impl Connection for Scripted {
    async fn request(&mut self, request: JournalRequest, _at_once: bool) -> Result<Lines, CommandError> {
        self.requests.lock().unwrap().push(request);
        match self.answers.pop_front() {
            Some(answer) => Ok(stream::iter(answer?).boxed()),
            None => Ok(stream::pending().boxed()),
        }
    }

    async fn changed(&mut self) {}

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(9_000)
    }
}

fn line(at: i64, text: &str) -> Result<JournalLine, String> {
    Ok(JournalLine { at: Timestamp::from_millis(at), text: text.to_owned() })
}

fn unreachable() -> Answer {
    Err(CommandError::new(Code::NodeUnreachable, "the node is not connected"))
}

fn reader(
    answers: Vec<Answer>,
    range: Range,
    position: Option<LogPosition>,
) -> (JournalReader<Scripted>, Arc<Mutex<Vec<JournalRequest>>>) {
    let requests = Arc::<Mutex<Vec<JournalRequest>>>::default();
    let connection = Scripted { answers: answers.into(), requests: requests.clone() };
    (JournalReader::new(connection, ("agent-1".into(), "rke2-agent.service".into()), range, position), requests)
}

/// Reads until the journal ends or its node stays silent. A line is its text, a report its code or text.
fn read_all(reader: &mut JournalReader<Scripted>) -> Vec<String> {
    let mut read = Vec::new();
    while let Some(Some(next)) = reader.next().now_or_never() {
        read.push(match next {
            Read::Line(line) => line.line.text,
            Read::Problem(line) => format!("! {}", line.line.code.unwrap_or(line.line.text)),
            Read::CaughtUp => "=".to_owned(),
            Read::Member(name) => name,
        });
    }
    read
}

const FOLLOW: Range = Range { since: None, tail: Some(10), follow: true };

#[test]
fn follower_neither_loses_nor_repeats_lines_when_the_node_connects_again() {
    let answers = vec![
        Ok(vec![line(1, "a"), line(2, "b"), line(2, "c")]),
        // The request repeats the lines of the last time; a line of the same time follows.
        Ok(vec![line(2, "b"), line(2, "c"), line(2, "d"), line(3, "e"), Err("lost".to_owned())]),
        unreachable(),
        unreachable(),
        Ok(vec![line(3, "e"), line(3, "f")]),
        // The node disconnects without an error.
        Ok(vec![line(3, "e"), line(3, "f"), line(5, "g")]),
    ];
    let (mut reader, requests) = reader(answers, FOLLOW, None);
    let expected =
        ["a", "b", "c", "=", "d", "e", "! its journal broke off: lost", "! its journal is read again", "f", "g"];
    assert_eq!(read_all(&mut reader), expected, "an outage is reported once");
    let requests = requests.lock().unwrap();
    let ranges: Vec<_> = requests
        .iter()
        .map(|request| (request.since.map(Timestamp::as_millis), request.tail, request.follow))
        .collect();
    let expected = [
        (None, Some(10), false),
        (Some(2), None, true),
        (Some(3), None, true),
        (Some(3), None, true),
        (Some(3), None, true),
        (Some(3), None, true),
        (Some(5), None, true),
    ];
    assert_eq!(ranges, expected);
}

#[test]
fn unreachable_member_is_reported_and_read_later_from_its_last_lines() {
    let answers = vec![unreachable(), Ok(vec![line(1, "a")])];
    let (mut reader, requests) = reader(answers, FOLLOW, None);
    assert_eq!(read_all(&mut reader), ["! node_unreachable", "! its journal is read again", "a", "="]);
    assert_eq!(requests.lock().unwrap()[1].tail, Some(10), "the whole journal is read");
    let once = Range { follow: false, ..FOLLOW };
    let (mut ended, _) = self::reader(vec![unreachable()], once, None);
    assert_eq!(read_all(&mut ended), ["! node_unreachable"]);
    assert!(matches!(ended.next().now_or_never(), Some(None)), "it does not end");
}

#[test]
fn journal_of_a_removed_member_ends_with_its_reason() {
    let removed = || Err(CommandError::new(Code::NodeNotAllocated, "the member was removed").then("see the list"));
    let answers = vec![Ok(vec![line(1, "a")]), Ok(Vec::new()), unreachable(), removed()];
    let (mut reader, _) = reader(answers, FOLLOW, None);
    assert_eq!(read_all(&mut reader), ["a", "=", "! node_unreachable", "! node_not_allocated"]);
    assert!(matches!(reader.next().now_or_never(), Some(None)), "it does not end");
    assert_eq!(removed().unwrap_err().code(), Code::NodeNotAllocated);
}

#[test]
fn journal_continues_after_the_position_of_a_client() {
    let position = Some(LogPosition { at: Timestamp::from_millis(2), lines: 1 });
    let answers = vec![Ok(vec![line(2, "b"), line(2, "c"), line(3, "d")])];
    let (mut reader, requests) = reader(answers, Range { follow: false, ..FOLLOW }, position);
    let mut positions = Vec::new();
    while let Some(Some(Read::Line(line))) = reader.next().now_or_never() {
        positions.push((line.line.text, line.line.position.unwrap()));
    }
    let expected = [("c", "1970-01-01T00:00:00.002Z/2"), ("d", "1970-01-01T00:00:00.003Z/1")];
    assert_eq!(positions, expected.map(|(text, position)| (text.to_owned(), position.to_owned())));
    assert_eq!(requests.lock().unwrap()[0].since, Some(Timestamp::from_millis(2)));
}

#[test]
fn endless_response_is_cut_and_a_follower_goes_on_after_it() {
    let long = "x".repeat(16 * 1_024);
    let most = RESPONSE_BYTES_MAX / long.len();
    let endless = |from: usize| Ok((from..).take(most + 5).map(|at| line(at as i64, &long)).collect());
    let (mut once, _) = reader(vec![endless(1)], Range { follow: false, ..FOLLOW }, None);
    let read = read_all(&mut once);
    assert_eq!(read.len(), most + 1);
    assert!(read[most].starts_with("! cut: one request reads at most 32 MiB"), "{}", read[most]);

    let (mut follower, requests) = reader(vec![endless(1), endless(most)], FOLLOW, None);
    assert_eq!(read_all(&mut follower).len(), 2 * most - 1, "lines are lost or repeated");
    assert_eq!(requests.lock().unwrap().len(), 3);
}

#[test]
fn journal_with_endless_lines_of_one_moment_ends() {
    let same = || Ok((0..RESPONSE_LINES_MAX + 1).map(|_| line(1, "")).collect());
    let (mut reader, _) = reader(vec![same(), same()], FOLLOW, None);
    let read = read_all(&mut reader);
    assert_eq!(read.len(), RESPONSE_LINES_MAX + 1);
    assert!(read.last().is_some_and(|last| last.contains("more lines of one moment")), "{:?}", read.last());
}
