//! Delivery of the key set to nodes.

use gpuaas_engine::commands::{keys, ping};
use gpuaas_model::{Code, KeyState, TaskState};

use crate::{
    nodes::failed,
    world::{World, admin, eventually},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_sent_again_while_its_node_may_lack_the_key() {
    let world = World::in_little_hurry().await;
    let node = world.node("gpu-1").await;
    world.nodes.refusing.lock().unwrap().push(node);
    world.nodes.will_end(vec![failed(Code::EnvelopeInvalid, "the key is not known"); 3]);
    let (task, _) = ping::ping(&world.engine, &admin(), node).await.expect("the node has learned the key");
    assert_eq!((task.state, world.nodes.sent()), (TaskState::Succeeded, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_the_keys_is_asked_once_more_and_then_means_what_it_says() {
    let world = World::new().await;
    let node = world.node("gpu-1").await;
    world.keep_keys();
    eventually("it is not given the keys", async || world.held_by(node).await == 1).await;
    world.nodes.will_end(vec![failed(Code::EnvelopeInvalid, "the key is not known"); 9]);
    let refused = ping::ping(&world.engine, &admin(), node).await.expect_err("it does not take the task");
    assert!(refused.to_string().contains("failed"), "{refused}");
    assert_eq!(world.nodes.sent(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stalls_on_its_keys_holds_up_nobody_else() {
    let world = World::new().await;
    let stalled = world.node("gpu-1").await;
    world.nodes.stalled.lock().unwrap().push(stalled);
    world.keep_keys();
    eventually("it is not given the keys", async || world.nodes.times_given(stalled) == 1).await;
    // Connects while the delivery to the first node is pending. Each registration wakes the key rotation loop.
    let other = world.node("gpu-2").await;
    world.node("gpu-3").await;
    eventually("the other is not given the keys", async || world.held_by(other).await == 1).await;
    assert_eq!(world.nodes.times_given(stalled), 1, "it is given them once at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_did_not_take_its_keys_is_given_them_again_soon() {
    let world = World::new().await;
    let node = world.node("gpu-1").await;
    world.nodes.refusing.lock().unwrap().push(node);
    let began = world.engine.ports().runtime.elapsed();
    world.keep_keys();
    eventually("it is not given the keys again", async || world.nodes.times_given(node) == 3).await;
    // Retries after 1 s and after 2 s more; the next sweep would come after 30 s.
    let took = world.engine.ports().runtime.elapsed() - began;
    assert!(took.as_secs() >= 3 && took.as_secs() < 20, "{took:?}");
    world.nodes.refusing.lock().unwrap().clear();
    eventually("it does not take the keys", async || world.held_by(node).await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_long_a_staged_key_waits_goes_by_no_replicas_own_clock() {
    let world = World::new().await;
    let node = world.node("gpu-1").await;
    world.nodes.refusing.lock().unwrap().push(node);
    // By the clock of the engine that continues the rotation, it began an hour ago.
    let other = world.behind_by_an_hour().await;
    keys::rotate(&other, &admin()).await.expect("begun");
    world.keep_keys();
    eventually("it is not given the keys", async || world.nodes.times_given(node) >= 2).await;
    assert_eq!(world.states().await, [KeyState::Active, KeyState::Staged]);
}
