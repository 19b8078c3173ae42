//! The ledger: a known task is answered from it and never runs again, whatever happened in between.

use gpuaas_model::Code;
use gpuaas_trust::TaskStatement;
use gpuaas_wire::{
    session::{AgentProblemKind, TaskLine},
    task::TaskOutcome,
};

use super::test_node::{
    HEAD, LEDGER, TestNode, begun, cancellable, earlier, end, late_ports, statement, task, unresponsive,
};
use crate::runner::Accepted;

async fn write(test_node: &TestNode, content: Vec<u8>) {
    test_node.write(LEDGER, &content).await;
}

#[tokio::test]
async fn replayed_task_returns_its_recorded_end_and_does_not_run_again() {
    let mut test_node = TestNode::new().await;
    let first = test_node.end(&statement(1)).await;
    assert!(matches!(first, TaskLine::Ended(TaskOutcome::Succeeded { .. })));
    for _ in 0..2 {
        let Ok(Accepted::Known(lines)) = test_node.send(&statement(1)).await else { panic!("the task is not known") };
        assert_eq!(lines, std::slice::from_ref(&first));
        test_node.restart().await.unwrap();
    }
    // A recorded end is also returned for an expired envelope, and for one with a lower fence.
    test_node.end(&TaskStatement { fence: 9, ..statement(2) }).await;
    let late = TaskStatement { expires_at: earlier(std::time::Duration::from_secs(5)), ..statement(1) };
    assert_eq!(test_node.end(&late).await, first);
    assert_eq!(test_node.runs().await, 2);
}

#[tokio::test]
async fn task_sent_twice_at_once_runs_once() {
    let test_node = TestNode::new().await;
    let task = statement(1);
    let (one, other) = tokio::join!(test_node.send(&task), test_node.send(&task));
    let ends = (end(one.ok().unwrap()).await, end(other.ok().unwrap()).await);
    assert_eq!(ends.0, ends.1);
    assert_eq!(test_node.runs().await, 1);
}

#[test]
fn task_during_which_the_agent_died_is_interrupted_and_not_run_again() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let mut test_node = first.block_on(async {
        let test_node = TestNode::new().await;
        begun(test_node.send(&unresponsive(1)).await.ok().unwrap()).await;
        test_node
    });
    first.shutdown_background();
    runtime().block_on(async {
        test_node.restart().await.unwrap();
        for _ in 0..2 {
            let Ok(Accepted::Known(lines)) = test_node.send(&unresponsive(1)).await else {
                panic!("the task is not known")
            };
            assert_eq!(lines, [TaskLine::Interrupted]);
            test_node.restart().await.unwrap();
        }
        assert_eq!(test_node.runs().await, 1);
        assert!(test_node.ended().await.is_empty(), "the interrupted task must have no recorded end");
    });
}

#[tokio::test]
async fn truncated_begin_line_is_ignored() {
    let mut test_node = TestNode::new().await;
    test_node.end(&statement(1)).await;
    for tail in [r#"{"line":"begin","task":"0198c0de-7a3b"#, "\0\0\0\0", "\u{7f}garbage\n"] {
        let whole = test_node.text(LEDGER).await;
        write(&test_node, [whole.as_bytes(), tail.as_bytes()].concat()).await;
        test_node.restart().await.unwrap();
        assert!(matches!(test_node.end(&statement(1)).await, TaskLine::Ended(_)));
    }
    test_node.end(&statement(2)).await;
    assert_eq!(test_node.runs().await, 2);
    test_node.restart().await.unwrap();
    assert_eq!(test_node.ended().await, [task(1), task(2)]);
}

#[tokio::test]
async fn truncated_end_line_reads_as_interrupted() {
    let mut test_node = TestNode::new().await;
    let lines = begun(test_node.send(&cancellable(1)).await.ok().unwrap()).await;
    let head = test_node.text(HEAD).await;
    test_node.runner.cancel(task(1));
    end(lines).await;
    // The agent died while it wrote the end line. It had not reported the end.
    let whole = test_node.text(LEDGER).await;
    write(&test_node, whole.as_bytes()[..whole.len() - 9].to_vec()).await;
    test_node.write(HEAD, head.as_bytes()).await;
    test_node.restart().await.unwrap();
    assert_eq!(test_node.end(&cancellable(1)).await, TaskLine::Interrupted);
    assert_eq!(test_node.runs().await, 1);
}

#[tokio::test]
async fn unacknowledged_line_is_read_and_the_ledger_continues() {
    let mut test_node = TestNode::new().await;
    let before = test_node.text(HEAD).await;
    let lines = begun(test_node.send(&cancellable(1)).await.ok().unwrap()).await;
    test_node.write(HEAD, before.as_bytes()).await;
    test_node.restart().await.unwrap();
    drop(lines);
    assert_eq!(test_node.end(&cancellable(1)).await, TaskLine::Interrupted);
    // The same if the file was rewritten and its head was not.
    let before = test_node.text(HEAD).await;
    test_node.restart().await.unwrap();
    test_node.write(HEAD, before.as_bytes()).await;
    test_node.restart().await.unwrap();
    assert_eq!(test_node.end(&cancellable(1)).await, TaskLine::Interrupted);
    test_node.end(&statement(2)).await;
    assert_eq!(test_node.runner.ledger_mark().await.map(|mark| mark.written), Some(3));
}

#[tokio::test]
async fn begin_lines_lost_in_a_crash_are_read_from_the_head() {
    for running in 1..=3 {
        let mut test_node = TestNode::new().await;
        test_node.end(&statement(9)).await;
        let durable = test_node.text(LEDGER).await.len();
        for number in 1..=running {
            drop(begun(test_node.send(&cancellable(number)).await.ok().unwrap()).await);
        }
        let (whole, head) = (test_node.text(LEDGER).await, test_node.text(HEAD).await);
        // The third begin line syncs the ledger file. From then on all three lines are durable there, and a missing one is damage.
        let is_in_head = running < 3;
        for length in (durable..whole.len()).step_by(11) {
            std::fs::write(test_node.file(LEDGER), &whole.as_bytes()[..length]).unwrap();
            std::fs::write(test_node.file(HEAD), &head).unwrap();
            test_node.restart().await.unwrap();
            assert_eq!(test_node.runner.problem().is_none(), is_in_head, "{running} running, {length} bytes");
            if is_in_head {
                for number in 1..=running {
                    assert_eq!(test_node.end(&cancellable(number)).await, TaskLine::Interrupted, "{length} bytes");
                }
                assert_eq!(test_node.ended().await, [task(9)]);
            }
        }
    }
}

#[tokio::test]
async fn lines_that_a_crash_zeroed_before_they_were_durable_are_read_from_the_head() {
    for running in 1..=2 {
        let mut test_node = TestNode::new().await;
        test_node.end(&statement(9)).await;
        let durable = test_node.text(LEDGER).await.len();
        let mut accepted = Vec::new();
        for number in 1..=running {
            accepted.push(begun(test_node.send(&cancellable(number)).await.ok().unwrap()).await);
        }
        // The end of the last one is appended, and the machine loses power before it is durable.
        let head = test_node.text(HEAD).await;
        test_node.runner.cancel(task(running));
        end(accepted.pop().unwrap()).await;
        drop(accepted);
        let whole = test_node.text(LEDGER).await.into_bytes();
        let runs = test_node.runs().await;
        for (from, length) in (durable..whole.len()).step_by(13).flat_map(|from| [(from, 13), (from, 200), (from, 900)])
        {
            let mut zeroed = whole.clone();
            zeroed[from..whole.len().min(from + length)].fill(0);
            std::fs::write(test_node.file(LEDGER), &zeroed).unwrap();
            std::fs::write(test_node.file(HEAD), &head).unwrap();
            test_node.restart().await.unwrap();
            assert!(
                test_node.runner.problem().is_none(),
                "{length} bytes from {from}: {:?}",
                test_node.runner.problem()
            );
            for number in 1..=running {
                test_node.end(&cancellable(number)).await;
            }
            assert_eq!(test_node.runs().await, runs, "{length} bytes from {from}");
        }
    }
}

#[tokio::test]
async fn third_consecutive_begin_record_is_durable() {
    let test_node = TestNode::new().await;
    for number in 1..=3 {
        drop(begun(test_node.send(&cancellable(number)).await.ok().unwrap()).await);
    }
    let acknowledged = test_node.text(HEAD).await;
    drop(begun(test_node.send(&cancellable(4)).await.ok().unwrap()).await);
    let next = test_node.text(HEAD).await;
    let lines = |record: &str| serde_json::from_str::<serde_json::Value>(record).unwrap()["lines"].as_u64();
    let third = acknowledged.lines().max_by_key(|record| lines(record)).unwrap();
    assert!(next.lines().any(|record| record == third), "the next record replaces the older one");
}

#[tokio::test]
async fn head_of_an_older_agent_has_shorter_records() {
    let mut test_node = TestNode::new().await;
    test_node.end(&statement(1)).await;
    let head = test_node.text(HEAD).await;
    let record = head.lines().find(|record| !record.contains("\"line\"")).unwrap().trim_end();
    for older in [format!("{record:<511}\n").repeat(2), format!("{record}\n"), record.to_owned()] {
        test_node.write(HEAD, older.as_bytes()).await;
        test_node.restart().await.unwrap();
        assert_eq!(test_node.ended().await, [task(1)], "{} bytes: {:?}", older.len(), test_node.runner.problem());
        test_node.write(HEAD, head.as_bytes()).await;
    }
}

#[tokio::test]
async fn torn_record_is_never_the_newest_durable_one() {
    let mut test_node = TestNode::new().await;
    // Consecutive end lines overwrite the same head record without a sync, so the other record stays intact.
    let lines = [
        begun(test_node.send(&cancellable(1)).await.ok().unwrap()).await,
        begun(test_node.send(&cancellable(2)).await.ok().unwrap()).await,
    ];
    let before = test_node.text(HEAD).await;
    for (number, lines) in (1..).zip(lines) {
        test_node.runner.cancel(task(number));
        end(lines).await;
    }
    let after = test_node.text(HEAD).await;
    let same: Vec<bool> = before.lines().zip(after.lines()).map(|(before, after)| before == after).collect();
    assert_eq!(same.iter().filter(|same| **same).count(), 1, "{same:?}");
    // The next beginning is written over the same record.
    let kept = same.iter().position(|same| *same).unwrap();
    drop(begun(test_node.send(&cancellable(3)).await.ok().unwrap()).await);
    let next = test_node.text(HEAD).await;
    assert_eq!(next.lines().nth(kept), before.lines().nth(kept));
    test_node.restart().await.unwrap();
    assert_eq!(test_node.ended().await, [task(1), task(2)]);
}

/// Flips a bit of each of these bytes.
fn damaged(text: &str, places: &[usize]) -> Vec<u8> {
    let mut damaged = text.as_bytes().to_vec();
    places.iter().for_each(|at| damaged[*at] ^= 1);
    damaged
}

#[tokio::test]
async fn one_intact_head_record_suffices() {
    let mut test_node = TestNode::new().await;
    let length = test_node.text(HEAD).await.len();
    test_node.end(&statement(1)).await;
    let whole = test_node.text(HEAD).await;
    assert_eq!((whole.len(), whole.lines().count()), (length, 2));
    let records = whole.lines().map(|record| serde_json::from_str::<serde_json::Value>(record).unwrap());
    let lines: Vec<_> = records.map(|record| record["lines"].as_u64().unwrap()).collect();
    assert_eq!(lines[0].abs_diff(lines[1]), 1, "the two records are not written alternately");
    let ledger = test_node.text(LEDGER).await;
    for at in [20, length / 2 + 20] {
        test_node.write(LEDGER, ledger.as_bytes()).await;
        test_node.write(HEAD, &damaged(&whole, &[at])).await;
        test_node.restart().await.unwrap();
        assert_eq!(test_node.ended().await, [task(1)], "byte {at}");
    }
}

#[tokio::test]
async fn no_task_runs_without_an_intact_head_record() {
    let mut test_node = TestNode::new().await;
    test_node.end(&statement(1)).await;
    let whole = test_node.text(HEAD).await;
    test_node.write(HEAD, &damaged(&whole, &[20, whole.len() / 2 + 20])).await;
    test_node.restart().await.unwrap();
    let problem = test_node.runner.problem().expect("no problem is reported");
    assert!(problem.detail.contains("ledger.head is damaged"), "{}", problem.detail);
    assert_eq!(test_node.refusal(&statement(2)).await, Code::AgentLedgerDamaged);
}

#[tokio::test]
async fn no_task_runs_with_a_damaged_ledger() {
    let mut test_node = TestNode::new().await;
    test_node.end(&statement(1)).await;
    test_node.end(&statement(2)).await;
    let lines = test_node.text(LEDGER).await;
    let damaged = lines.replacen("begin", "b\u{1}gin", 1);
    assert_ne!(lines, damaged);
    write(&test_node, damaged.clone().into_bytes()).await;
    for _ in 0..2 {
        test_node.restart().await.unwrap();
        assert_eq!(test_node.refusal(&statement(1)).await, Code::AgentLedgerDamaged);
        assert_eq!(test_node.refusal(&statement(3)).await, Code::AgentLedgerDamaged);
        let problem = test_node.runner.problem().expect("a problem");
        assert_eq!(problem.kind, AgentProblemKind::LedgerDamaged);
        assert!(problem.detail.contains(LEDGER) && problem.detail.contains("line 2 of 5"), "{problem:?}");
        assert_eq!((test_node.runner.fence().await, test_node.runner.ledger_mark().await), (0, None));
        assert_eq!(test_node.text(LEDGER).await, damaged, "the damaged ledger stays unchanged");
    }
    test_node.host.files().remove(LEDGER.into()).await.unwrap();
    test_node.host.files().make_folder(LEDGER.into(), 0o700).await.unwrap();
    test_node.restart().await.unwrap();
    let problem = test_node.runner.problem().expect("the ledger is a folder");
    assert!(problem.detail.contains("cannot be read"), "{problem:?}");
}

#[tokio::test]
async fn any_cut_or_changed_byte_of_the_ledger_is_detected() {
    let mut test_node = TestNode::new().await;
    test_node.end(&statement(1)).await;
    test_node.end(&statement(2)).await;
    let whole = test_node.text(LEDGER).await.into_bytes();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        // A missing newline at the very end loses nothing.
        let cut = Some(whole[..at].to_vec()).filter(|_| at != whole.len() - 1);
        for damaged in [Some(flipped), cut].into_iter().flatten() {
            std::fs::write(test_node.file(LEDGER), &damaged).unwrap();
            test_node.restart().await.unwrap();
            assert!(test_node.runner.problem().is_some(), "byte {at}: {:?}", String::from_utf8_lossy(&damaged));
        }
    }
    std::fs::write(test_node.file(LEDGER), &whole).unwrap();
    test_node.restart().await.unwrap();
    assert_eq!(test_node.ended().await, [task(1), task(2)]);
}

#[tokio::test]
async fn task_that_cannot_be_recorded_is_refused_and_not_run() {
    let mut test_node = TestNode::new().await;
    test_node.end(&statement(1)).await;
    // The path no longer leads to the opened file: a line written to it would not be found again.
    test_node.host.files().remove(LEDGER.into()).await.unwrap();
    assert_eq!(test_node.refusal(&statement(2)).await, Code::HostFailed);
    assert_eq!(test_node.runs().await, 1);
    // The next task is recorded together with everything before it, completely.
    test_node.end(&statement(3)).await;
    test_node.restart().await.unwrap();
    assert_eq!(test_node.ended().await, [task(1), task(3)]);
    assert_eq!(test_node.runs().await, 2);
}

#[tokio::test]
async fn end_that_cannot_be_recorded_is_reported_and_recorded_with_the_next_task() {
    let mut test_node = TestNode::new().await;
    let lines = begun(test_node.send(&cancellable(1)).await.ok().unwrap()).await;
    test_node.host.files().remove(LEDGER.into()).await.unwrap();
    test_node.runner.cancel(task(1));
    let ended = end(lines).await;
    assert_eq!(test_node.end(&cancellable(1)).await, ended, "the running agent knows the end");
    test_node.end(&statement(2)).await;
    test_node.restart().await.unwrap();
    assert_eq!(test_node.end(&cancellable(1)).await, ended);
    assert_eq!(test_node.ended().await, [task(1), task(2)]);
}

#[tokio::test]
async fn ledger_drops_only_tasks_that_can_no_longer_be_replayed() {
    let mut test_node = TestNode::new().await;
    for number in 1..300 {
        test_node.end(&statement(number)).await;
    }
    // The task that is removed first has the highest fence.
    test_node.end(&TaskStatement { fence: 9, ..statement(0) }).await;
    test_node.restart().await.unwrap();
    assert_eq!(test_node.ended().await.len(), 300, "all of them can still be replayed");
    // One start removes the tasks, the second reads the rest.
    for _ in 0..2 {
        test_node.restart_with(late_ports()).await.unwrap();
    }
    let (fence, ended) = (test_node.runner.fence().await, test_node.ended().await);
    assert_eq!((fence, ended.len(), ended[0]), (9, 256, task(44)));
    assert_eq!(test_node.runs().await, 300);
}
