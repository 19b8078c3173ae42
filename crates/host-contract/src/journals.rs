//! Journals: no line is lost, repeated or of another unit, whatever bytes a program writes.

use std::time::Duration;

use futures::StreamExt;
use gpuaas_host::{JournalFrom, JournalLine};

use crate::{Backend, Bench};

/// Creates a named pipe and prints a line for each line that it reads from it.
const ECHOES: &str =
    "mkfifo $root/tmp/$0; echo say: zero; while :; do while read line; do echo say: $line; done < $root/tmp/pipe; done";

async fn echoing(backend: &dyn Backend) -> Bench {
    let bench = Bench::of(backend);
    bench.service("echo", "", &ECHOES.replace("$0", "pipe")).await;
    bench.host.units().start("echo.service").await.unwrap();
    bench.wait_for_line("echo.service", "say: zero").await;
    bench
}

async fn write_lines(bench: &Bench, words: &str) -> JournalLine {
    bench.run(&format!("for word in {words}; do echo $word; done > $root/tmp/pipe")).await;
    bench.wait_for_line("echo.service", &format!("say: {}", words.rsplit(' ').next().unwrap())).await
}

fn texts(lines: &[JournalLine]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

pub async fn journal_continues_after_a_cursor(backend: &dyn Backend) {
    let bench = echoing(backend).await;
    let one = write_lines(&bench, "one").await;
    write_lines(&bench, "two three").await;
    let behind = bench.lines("echo.service", JournalFrom::After(one.cursor.clone())).await;
    assert_eq!(texts(&behind), ["say: two", "say: three"]);
    assert!(behind[1].at >= behind[0].at && behind[0].at >= one.at);
    let all = bench.lines("echo.service", JournalFrom::Start).await;
    assert_eq!(texts(&all), ["say: zero", "say: one", "say: two", "say: three"]);
    assert_eq!(all[1], one, "a line is the same for every starting point");
    let newest = JournalFrom::After(all[3].cursor.clone());
    assert!(bench.lines("echo.service", newest).await.is_empty());
}

pub async fn journal_starts_at_a_time(backend: &dyn Backend) {
    let bench = echoing(backend).await;
    let one = write_lines(&bench, "one").await;
    // Lines of the same millisecond have the same time.
    while bench.run("date +%s%3N").await.output.trim().parse::<i64>().unwrap() <= one.at.as_millis() {}
    let two = write_lines(&bench, "two").await;
    let since = bench.lines("echo.service", JournalFrom::Since(two.at)).await;
    assert_eq!(texts(&since), ["say: two"]);
    let later = two.at.plus(Duration::from_secs(3_600));
    assert!(bench.lines("echo.service", JournalFrom::Since(later)).await.is_empty());
}

pub async fn journal_tail_is_its_last_lines(backend: &dyn Backend) {
    let bench = echoing(backend).await;
    write_lines(&bench, "one two three").await;
    assert_eq!(texts(&bench.lines("echo.service", JournalFrom::Tail(2)).await), ["say: two", "say: three"]);
    assert!(bench.lines("echo.service", JournalFrom::Tail(0)).await.is_empty());
    assert_eq!(bench.lines("echo.service", JournalFrom::Tail(u32::MAX)).await.len(), 4);
}

pub async fn followed_journal_yields_new_lines(backend: &dyn Backend) {
    let bench = echoing(backend).await;
    let follow = bench.host.units().journal("echo.service", JournalFrom::Tail(0), true).await.unwrap();
    let follow = follow.filter(|line| std::future::ready(line.text.contains("say:")));
    write_lines(&bench, "one").await;
    write_lines(&bench, "two").await;
    let lines: Vec<JournalLine> = follow.take(2).collect().await;
    assert_eq!(texts(&lines), ["say: one", "say: two"]);
}

/// journald accepts at most 48 KiB as one line (`LineMax=`).
pub async fn long_line_is_truncated_and_marked(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    // A single process writes everything, because journald keeps the output of different processes in different lines.
    let program =
        "{ printf say:; head -c 1048576 /dev/zero | tr '\\0' x; echo; echo say: next; } | cat; exec sleep 1000";
    bench.service("wordy", "", program).await;
    bench.host.units().start("wordy.service").await.unwrap();
    bench.wait_for_line("wordy.service", "say: next").await;
    let lines = bench.lines("wordy.service", JournalFrom::Start).await;
    assert_eq!((lines.len(), lines[1].text.as_str()), (2, "say: next"));
    assert!(lines[0].text.starts_with("say:xxx") && lines[0].text.len() <= JournalLine::TEXT_BYTES_MAX, "{lines:?}");
    assert!(lines[0].text.ends_with("[cut; the line has 49152 bytes]"), "{}", lines[0].text);
}

/// A NUL ends a line, as in journald.
pub async fn invalid_utf8_does_not_break_a_journal(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let noise = "head -c 3000 /dev/zero; printf '\\377\\376\\033[31m'; echo";
    let program = format!("printf 'say: \\377\\000say: \\001 noise\\n'; {noise}; echo say: next; exec sleep 1000");
    bench.service("noisy", "", &program).await;
    bench.host.units().start("noisy.service").await.unwrap();
    bench.wait_for_line("noisy.service", "say: next").await;
    let lines = bench.lines("noisy.service", JournalFrom::Start).await;
    assert_eq!(texts(&lines), ["say: \u{fffd}", "say: \u{1} noise", "say: next"]);
}

pub async fn each_unit_has_its_own_journal(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    for unit in ["one", "two"] {
        bench.service(unit, "", &format!("echo say: {unit}; echo say: error >&2; exec sleep 1000")).await;
        bench.host.units().start(&format!("{unit}.service")).await.unwrap();
    }
    for unit in ["one", "two"] {
        let name = format!("{unit}.service");
        bench.wait_for_line(&name, "say: error").await;
        bench.wait_for_line(&name, &format!("say: {unit}")).await;
        let lines = bench.lines(&name, JournalFrom::Start).await;
        let mut texts = texts(&lines);
        texts.sort_unstable();
        let mut expected = ["say: error".to_owned(), format!("say: {unit}")];
        expected.sort_unstable();
        assert_eq!(texts, expected);
    }
}
