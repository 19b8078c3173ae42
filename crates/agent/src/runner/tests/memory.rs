//! The ledger: what was told is told again and never done again, whatever happened in between.

use gpuaas_host::FileSpec;
use gpuaas_model::Code;
use gpuaas_trust::TaskStatement;
use gpuaas_wire::{session::TaskLine, task::TaskOutcome};

use super::world::{LEDGER, World, begun, deaf, earlier, end, patient, statement, task};
use crate::{error::AgentError, runner::Accepted};

async fn write(world: &World, content: Vec<u8>) {
    let file = FileSpec { path: LEDGER.into(), mode: 0o600, content };
    world.host.write(&file).await.unwrap();
}

#[tokio::test]
async fn a_replayed_task_returns_what_is_recorded_and_runs_not_again() {
    let mut world = World::new().await;
    let first = world.end(&statement(1)).await;
    assert!(matches!(first, TaskLine::Ended(TaskOutcome::Succeeded { .. })));
    for _ in 0..2 {
        let Ok(Accepted::Known(lines)) = world.send(&statement(1)).await else { panic!("it is known") };
        assert_eq!(lines, std::slice::from_ref(&first));
        world.restart().await.unwrap();
    }
    // However late it comes and whatever fence was seen since.
    world.end(&TaskStatement { fence: 9, ..statement(2) }).await;
    let late = TaskStatement { expires_at: earlier(std::time::Duration::from_secs(5)), ..statement(1) };
    assert_eq!(world.end(&late).await, first);
    assert_eq!(world.runs().await, 2);
}

#[tokio::test]
async fn one_task_that_comes_twice_at_once_runs_once() {
    let world = World::new().await;
    let task = statement(1);
    let (one, other) = tokio::join!(world.send(&task), world.send(&task));
    let ends = (end(one.ok().unwrap()).await, end(other.ok().unwrap()).await);
    assert_eq!(ends.0, ends.1);
    assert_eq!(world.runs().await, 1);
}

#[test]
fn a_task_in_whose_middle_the_agent_died_is_interrupted_and_runs_not_again() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let mut world = first.block_on(async {
        let world = World::new().await;
        begun(world.send(&deaf(1)).await.ok().unwrap()).await;
        world
    });
    first.shutdown_background();
    runtime().block_on(async {
        world.restart().await.unwrap();
        for _ in 0..2 {
            let Ok(Accepted::Known(lines)) = world.send(&deaf(1)).await else { panic!("it is known") };
            assert_eq!(lines, [TaskLine::Interrupted]);
            world.restart().await.unwrap();
        }
        assert_eq!(world.runs().await, 1);
        assert!(world.ended().await.is_empty(), "it has not ended");
    });
}

#[tokio::test]
async fn a_beginning_that_was_cut_in_the_middle_was_never_acted_upon() {
    let mut world = World::new().await;
    world.end(&statement(1)).await;
    for tail in [r#"{"line":"begin","task":"0198c0de-7a3b"#, "\0\0\0\0", "\u{7f}garbage\n"] {
        let whole = world.text(LEDGER).await;
        write(&world, [whole.as_bytes(), tail.as_bytes()].concat()).await;
        world.restart().await.unwrap();
        assert!(matches!(world.end(&statement(1)).await, TaskLine::Ended(_)));
    }
    world.end(&statement(2)).await;
    assert_eq!(world.runs().await, 2);
    world.restart().await.unwrap();
    assert_eq!(world.ended().await, [task(1), task(2)]);
}

#[tokio::test]
async fn an_end_that_was_cut_in_the_middle_reads_as_interrupted() {
    let mut world = World::new().await;
    world.end(&statement(1)).await;
    let whole = world.text(LEDGER).await;
    write(&world, whole.as_bytes()[..whole.len() - 9].to_vec()).await;
    world.restart().await.unwrap();
    assert_eq!(world.end(&statement(1)).await, TaskLine::Interrupted);
    assert_eq!(world.runs().await, 1);
}

#[tokio::test]
async fn a_ledger_that_is_damaged_in_its_middle_stops_the_agent() {
    let mut world = World::new().await;
    world.end(&statement(1)).await;
    world.end(&statement(2)).await;
    let lines = world.text(LEDGER).await;
    let damaged = lines.replacen("begin", "b\u{1}gin", 1);
    assert_ne!(lines, damaged);
    write(&world, damaged.into_bytes()).await;
    assert!(matches!(world.restart().await, Err(AgentError::State(_))));
    world.host.remove(LEDGER.into()).await.unwrap();
    world.host.make_folder(LEDGER.into(), 0o700).await.unwrap();
    assert!(matches!(world.restart().await, Err(AgentError::Host(_))), "a folder is no ledger");
}

#[tokio::test]
async fn a_task_that_cannot_be_recorded_is_refused_and_not_done() {
    let mut world = World::new().await;
    world.end(&statement(1)).await;
    // What was opened is not what lies there any more: nothing written to it would be found again.
    world.host.remove(LEDGER.into()).await.unwrap();
    assert_eq!(world.refusal(&statement(2)).await, Code::HostFailed);
    assert_eq!(world.runs().await, 1);
    // The next one is recorded with all that came before, whole.
    world.end(&statement(3)).await;
    world.restart().await.unwrap();
    assert_eq!(world.ended().await, [task(1), task(3)]);
    assert_eq!(world.runs().await, 2);
}

#[tokio::test]
async fn an_end_that_cannot_be_recorded_is_told_all_the_same_and_recorded_with_the_next_task() {
    let mut world = World::new().await;
    let lines = begun(world.send(&patient(1)).await.ok().unwrap()).await;
    world.host.remove(LEDGER.into()).await.unwrap();
    world.runner.cancel(task(1));
    let ended = end(lines).await;
    assert_eq!(world.end(&patient(1)).await, ended, "this run knows it");
    world.end(&statement(2)).await;
    world.restart().await.unwrap();
    assert_eq!(world.end(&patient(1)).await, ended);
    assert_eq!(world.ended().await, [task(1), task(2)]);
}

#[tokio::test]
async fn a_ledger_forgets_only_what_a_replay_could_not_wake() {
    let mut world = World::new().await;
    for number in 1..300 {
        world.end(&statement(number)).await;
    }
    // The one that is forgotten first has the highest fence.
    world.end(&TaskStatement { fence: 9, ..statement(0) }).await;
    world.restart().await.unwrap();
    assert_eq!(world.ended().await.len(), 300, "all of them could come again");
    let past = earlier(std::time::Duration::from_secs(5)).as_millis();
    let mut lines = Vec::new();
    for line in world.text(LEDGER).await.lines() {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(expires_at) = line.get_mut("expires_at") {
            *expires_at = past.into();
        }
        lines.push(line.to_string());
    }
    write(&world, lines.join("\n").into_bytes()).await;
    // Once to forget, and once to read what was left.
    world.restart().await.unwrap();
    world.restart().await.unwrap();
    let (fence, ended) = (world.runner.fence().await, world.ended().await);
    assert_eq!((fence, ended.len(), ended[0]), (9, 256, task(44)));
    assert_eq!(world.runs().await, 300);
}
