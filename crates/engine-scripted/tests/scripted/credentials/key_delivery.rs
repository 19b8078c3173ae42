//! Delivery of the key set to nodes.

use gpuaas_engine::commands::{keys, ping};
use gpuaas_model::{Code, Coded, KeyState, TaskState};

use crate::{
    engines::{Engines, admin, eventually},
    nodes::failed,
};

#[tokio::test(flavor = "multi_thread")]
async fn task_is_sent_again_while_its_node_may_lack_the_key() {
    let engines = Engines::with_low_speed().await;
    let node = engines.node("gpu-1").await;
    engines.nodes.refusing.lock().unwrap().push(node);
    engines.nodes.end_tasks(vec![failed(Code::EnvelopeInvalid, "the key is not known"); 3]);
    let (task, _) = ping::ping(&engines.engine, &admin(), node).await.expect("the node has accepted the key");
    assert_eq!((task.state, engines.nodes.sent()), (TaskState::Succeeded, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_by_a_node_with_the_keys_is_final_after_one_retry() {
    let engines = Engines::new().await;
    let node = engines.node("gpu-1").await;
    engines.run_key_rotation();
    eventually("the keys are not sent", async || engines.key_set_version_of(node).await == 1).await;
    engines.nodes.end_tasks(vec![failed(Code::EnvelopeInvalid, "the key is not known"); 9]);
    let refused = ping::ping(&engines.engine, &admin(), node).await.expect_err("the node refuses the task");
    assert_eq!((refused.code(), refused.to_string().as_str()), (Code::HostFailed, "gpu-1: the key is not known"));
    assert_eq!(engines.nodes.sent(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_stalls_on_its_keys_delays_no_other_node() {
    let engines = Engines::new().await;
    let stalled = engines.node("gpu-1").await;
    engines.nodes.stalled.lock().unwrap().push(stalled);
    engines.run_key_rotation();
    eventually("the keys are not sent", async || engines.nodes.deliveries_to(stalled) == 1).await;
    // Connects while the delivery to the first node is pending. Each registration wakes the key rotation loop.
    let other = engines.node("gpu-2").await;
    engines.node("gpu-3").await;
    eventually("the keys are not sent to the other node", async || engines.key_set_version_of(other).await == 1).await;
    assert_eq!(engines.nodes.deliveries_to(stalled), 1, "one delivery at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_keys_are_sent_again_soon() {
    let engines = Engines::new().await;
    let node = engines.node("gpu-1").await;
    engines.nodes.refusing.lock().unwrap().push(node);
    let began = engines.engine.ports().runtime.elapsed();
    engines.run_key_rotation();
    eventually("the keys are not sent again", async || engines.nodes.deliveries_to(node) == 3).await;
    // Retries after 1 s and after 2 s more; the next sweep would come after 30 s.
    let took = engines.engine.ports().runtime.elapsed() - began;
    assert!(took.as_secs() >= 3 && took.as_secs() < 20, "{took:?}");
    engines.nodes.refusing.lock().unwrap().clear();
    eventually("the node does not accept the keys", async || engines.key_set_version_of(node).await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn staged_key_waits_by_the_clock_of_the_database() {
    let engines = Engines::new().await;
    let node = engines.node("gpu-1").await;
    engines.nodes.refusing.lock().unwrap().push(node);
    // By the clock of the engine that continues the rotation, it began an hour ago.
    let other = engines.one_hour_behind().await;
    keys::rotate(&other, &admin()).await.expect("begun");
    engines.run_key_rotation();
    eventually("the keys are not sent", async || engines.nodes.deliveries_to(node) >= 2).await;
    assert_eq!(engines.states().await, [KeyState::Active, KeyState::Staged]);
}
