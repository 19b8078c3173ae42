//! Measures how much memory and time of the control plane a hostile apiserver can consume.
//!
//! The file has only one test, because it measures the memory of the whole process.
#![allow(clippy::unwrap_used)] // Helpers outside test functions unwrap too: a failed step fails the test.

#[path = "../../../../crates/kube/tests/hostile/mod.rs"]
mod hostile;

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::StreamExt as _;
use gpuaas_app_rke2_effects::Rke2Effects;
use gpuaas_engine::effects::{AccessRequest, AppEffects, CallContext, Secrets, Tunnel, Tunnels};
use gpuaas_model::{MemberState, NodeId, SecretId, Timestamp, WorkloadId};
use gpuaas_planner::{ClusterCall, ReleaseView, SecretView, WorkloadView, test_views};
use hostile::{Hostile, Reply};
use uuid::Uuid;
use zeroize::Zeroizing;

/// Number of simultaneous calls, each to its own cluster.
const CONCURRENCY: u128 = 4;
/// Largest growth of the process during [`CONCURRENCY`] calls, in MB. The answers themselves may use a twentieth of it.
const GROWTH_MB_MAX: u64 = 16;
/// Longest time for which the runtime may leave a ready task unscheduled; `/livez` is such a task.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Time for which a cluster is followed: long enough for a second list.
const FOLLOWED_FOR: Duration = Duration::from_secs(12);
/// Time after which a call counts as hung; calls end by themselves.
const WAIT_MAX: Duration = Duration::from_secs(60);
const MIB: usize = 1_024 * 1_024;

const READY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const ONE_POD: &str = r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"web","name":"api-1","uid":"1",
    "ownerReferences":[{"kind":"ReplicaSet","name":"api","controller":true}]}}]}"#;
const NO_NODES: &str = r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#;

/// Prints a figure past the test harness, which captures the output of passing tests.
fn show(figure: std::fmt::Arguments<'_>) {
    // A closed standard output must not fail the test.
    let _ = writeln!(io::stdout(), "{figure}");
}

#[derive(Clone, Copy)]
enum Call {
    Kubeconfig,
    KubeNodes,
    KubeNodeReady,
    Drain,
    Observe,
    Follow,
}

/// A call, and the apiserver's behaviour during it.
struct Attack {
    name: &'static str,
    call: Call,
    script: fn(&str) -> Reply,
}

const ATTACKS: &[Attack] = &[
    Attack {
        name: "32 MiB of tiny objects in an answer",
        call: Call::Kubeconfig,
        script: |_| Reply::chunks(r#"{"metadata":{"managedFields":[{}"#, ",{}", "]}}", 32 * MIB - 64 * 1_024),
    },
    Attack {
        name: "1 GiB of text without end",
        call: Call::Kubeconfig,
        script: |_| Reply::chunks(r#"{"metadata":{"name":""#, "aaaaaaaaaaaaaaaa", r#""}}"#, 1_024 * MIB),
    },
    Attack {
        name: "lists in lists, ten million deep",
        call: Call::Kubeconfig,
        script: |_| Reply::chunks(r#"{"metadata":{"labels":"#, "[", "}}", 10_000_000),
    },
    Attack {
        name: "ten million items in a list",
        call: Call::KubeNodes,
        script: |_| Reply::chunks(r#"{"metadata":{},"items":[{}"#, ",{}", "]}", 30_000_000),
    },
    Attack {
        name: "ten million conditions of a node",
        call: Call::KubeNodes,
        script: |_| Reply::chunks(r#"{"items":[{"status":{"conditions":[{}"#, ",{}", "]}}]}", 30_000_000),
    },
    Attack {
        name: "a million labels of a node",
        call: Call::KubeNodes,
        script: |_| Reply::chunks(r#"{"items":[{"metadata":{"labels":{"a":"b""#, r#","a":"b""#, "}}}]}", 8_000_000),
    },
    Attack {
        name: "ten million pods of a node",
        call: Call::Drain,
        script: |line| {
            drained(
                line,
                || Reply::chunks(r#"{"metadata":{},"items":[{}"#, ",{}", "]}", 30_000_000),
                || Reply::bytes(READY),
            )
        },
    },
    Attack {
        name: "a watch of pods without end during a drain",
        call: Call::Drain,
        script: |line| {
            drained(
                line,
                || Reply::json("200 OK", ONE_POD),
                || Reply::chunks("\n", "{\"type\":\"DELETED\",\"object\":{}}\n", "\n", 1_024 * MIB),
            )
        },
    },
    Attack {
        name: "millions of labels of a node that is compared",
        call: Call::Observe,
        script: |_| Reply::chunks(r#"{"items":[{"metadata":{"labels":{"a":"b""#, r#","a":"b""#, "}}}]}", 30_000_000),
    },
    Attack {
        name: "headers without end",
        call: Call::Kubeconfig,
        script: |_| {
            let line = "x-more: and more and more and more\r\n".repeat(400);
            Reply::pieces(std::iter::once("HTTP/1.1 200 OK\r\n".to_owned()).chain(std::iter::repeat_n(line, 70_000)))
        },
    },
    Attack {
        name: "100 Continue without end",
        call: Call::Kubeconfig,
        script: |_| Reply::pieces(std::iter::repeat_n("HTTP/1.1 100 Continue\r\n\r\n".repeat(600), 70_000)),
    },
    Attack {
        name: "an error of 1 GiB",
        call: Call::Kubeconfig,
        script: |_| {
            let head = "HTTP/1.1 500 Internal Server Error\r\n\r\n".to_owned();
            Reply::pieces(std::iter::once(head).chain(std::iter::repeat_n("no".repeat(8_192), 65_536)))
        },
    },
    Attack {
        name: "an event of 1 GiB in a watch",
        call: Call::KubeNodeReady,
        script: |line| {
            watched(line, || Reply::chunks(r#"{"type":"ADDED","object":{"a":""#, "aaaaaaaa", r#""}}"#, 1_024 * MIB))
        },
    },
    Attack {
        name: "a watch of tiny events without end",
        call: Call::KubeNodeReady,
        script: |line| {
            watched(line, || Reply::chunks("\n", "{\"type\":\"DELETED\",\"object\":{}}\n", "\n", 1_024 * MIB))
        },
    },
    Attack {
        name: "changes without end in a followed cluster",
        call: Call::Follow,
        script: |line| {
            let flip = "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\"},\"spec\":{\"unschedulable\":true}}}\n\
                        {\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n";
            watched(line, || Reply::chunks("\n", flip, "\n", 1_024 * MIB))
        },
    },
    Attack {
        name: "an event of 1 GiB in a followed cluster",
        call: Call::Follow,
        script: |line| {
            watched(line, || Reply::chunks(r#"{"type":"ADDED","object":{"a":""#, "aaaaaaaa", r#""}}"#, 1_024 * MIB))
        },
    },
];

/// Replies like a genuine apiserver without any node, except to the watch.
fn watched(line: &str, watch: impl Fn() -> Reply) -> Reply {
    if line.contains("watch=") {
        watch()
    } else if line.contains("/readyz") {
        Reply::bytes(READY)
    } else {
        Reply::json("200 OK", NO_NODES)
    }
}

/// Replies like a genuine apiserver with one KubeNode, except about its pods.
fn drained(line: &str, pods: impl Fn() -> Reply, watch: impl Fn() -> Reply) -> Reply {
    if line.contains("watch=") {
        watch()
    } else if line.contains("/pods?") {
        pods()
    } else {
        Reply::json("200 OK", r#"{"metadata":{"name":"gpu-1"},"spec":{"unschedulable":true},"status":{}}"#)
    }
}

struct OneSecret(String);

#[async_trait]
impl Secrets for OneSecret {
    async fn open(&self, _: SecretId) -> Result<Zeroizing<Vec<u8>>, String> {
        Ok(Zeroizing::new(self.0.clone().into_bytes()))
    }
}

struct HostileTunnels(Arc<Hostile>);

#[async_trait]
impl Tunnels for HostileTunnels {
    async fn open(&self, _: NodeId, _: u16) -> io::Result<Box<dyn Tunnel>> {
        Ok(Box::new(self.0.open()))
    }
}

fn context(hostile: &Arc<Hostile>, number: u128) -> CallContext {
    let id = |part: u128| Uuid::from_u128(number * 100 + part);
    let mut server = test_views::member("server-1", number * 100 + 1, MemberState::Pending);
    server.machine.name = "gpu-1".parse().unwrap();
    server.machine.address = hostile::ADDRESS.to_owned();
    let secret = SecretView { id: SecretId::from_uuid(id(4)), sha256: "0".repeat(64) };
    CallContext {
        workload: WorkloadView {
            id: WorkloadId::from_uuid(id(5)),
            config: serde_json::json!({}),
            release: ReleaseView { version: "v1.36.3+rke2r1".into(), artifacts: vec![] },
            secrets: BTreeMap::from([("admin-kubeconfig".to_owned(), secret)]),
            ..test_views::workload(vec![server])
        },
        secrets: Arc::new(OneSecret(hostile.kubeconfig.clone())),
        tunnels: Arc::new(HostileTunnels(hostile.clone())),
        progress: Arc::new(|_| {}),
        now: Timestamp::from_millis(0),
        deadline: Timestamp::from_millis(3_000),
    }
}

fn named(call: &str, parameters: serde_json::Value) -> ClusterCall {
    ClusterCall { call: call.to_owned(), parameters }
}

async fn run_call(effects: Arc<Rke2Effects>, call: Call, context: CallContext) -> String {
    let request = || AccessRequest {
        name: "access-1".into(),
        kind: "direct".into(),
        role: "cluster-admin".into(),
        ttl_seconds: 3_600,
        requested_by: "ann@example".into(),
    };
    let refused = match call {
        Call::Follow => return follow(&effects, context).await,
        Call::Kubeconfig => effects.deliver_access(request(), context).await.err(),
        Call::KubeNodes => effects.call(named("kube_nodes", serde_json::json!({})), context).await.err(),
        Call::Observe => effects.observe(context).await.err(),
        Call::KubeNodeReady => {
            effects.call(named("kube_node_ready", serde_json::json!({ "kube_node": "gpu-1" })), context).await.err()
        }
        Call::Drain => {
            let parameters = serde_json::json!({
                "kube_node": "gpu-1", "may_be_missing": false, "force": false, "delete_empty_dir_data": false,
            });
            effects.call(named("drain_kube_node", parameters), context).await.err()
        }
    };
    let refused = refused.expect("a hostile response must be refused");
    assert_ne!(refused.code, gpuaas_model::Code::TaskUnknown, "the call was not made: {}", refused.message);
    format!("{}: {}", refused.code, refused.message)
}

/// Follows the cluster for a time.
async fn follow(effects: &Rke2Effects, context: CallContext) -> String {
    let (mut observed, mut shown) = (effects.follow(context), 0);
    let followed = async {
        while let Some(observation) = observed.next().await {
            observation.expect("the cluster answers, although its watch cannot be used");
            shown += 1;
        }
    };
    tokio::time::timeout(FOLLOWED_FOR, followed).await.expect_err("a follower does not end");
    assert!((1..=2 + 2 * FOLLOWED_FOR.as_secs()).contains(&shown), "shown {shown} times");
    format!("shown {shown} times in {} s", FOLLOWED_FOR.as_secs())
}

/// Measures the longest time in which a task that is soon ready was not scheduled.
#[derive(Default)]
struct Pulse(Arc<AtomicU64>);

impl Pulse {
    const EVERY: Duration = Duration::from_millis(5);

    fn start(&self) -> tokio::task::AbortHandle {
        let longest = self.0.clone();
        let beats = async move {
            loop {
                let began = Instant::now();
                tokio::time::sleep(Self::EVERY).await;
                let late = began.elapsed().saturating_sub(Self::EVERY).as_micros();
                longest.fetch_max(u64::try_from(late).unwrap(), Ordering::Relaxed);
            }
        };
        tokio::spawn(beats).abort_handle()
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// Measures the peak memory of the process between two moments by sampling every few milliseconds.
struct Peak {
    most_kb: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    sampler: std::thread::JoinHandle<()>,
}

impl Peak {
    fn start() -> Self {
        let (most_kb, stop) = (Arc::new(AtomicU64::new(resident_kb())), Arc::new(AtomicBool::new(false)));
        let (most, end) = (most_kb.clone(), stop.clone());
        let looks = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                most.fetch_max(resident_kb(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self { most_kb, stop, sampler: looks }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.sampler.join().unwrap();
        self.most_kb.load(Ordering::Relaxed).max(resident_kb())
    }
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_hostile_apiserver_takes_little_memory_and_holds_up_no_other_task() {
    // The servers have their own threads, which are not measured.
    let theirs = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ours = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // Everything that is created once exists before the start is measured.
    let modest =
        Attack { name: "", call: Call::Kubeconfig, script: |_| Reply::json("500 Internal Server Error", "{}") };
    ours.block_on(attack(&modest, theirs.handle()));
    let start_kb = resident_kb();
    let mut excesses = Vec::new();
    for of in ATTACKS {
        let (peak, pulse) = (Peak::start(), Pulse::default());
        let (before, began) = (resident_kb(), Instant::now());
        let beats = ours.block_on(async { pulse.start() });
        let answer = ours.block_on(attack(of, theirs.handle()));
        beats.abort();
        let (most, took) = (peak.end(), began.elapsed());
        let (before_mb, most_mb) = (before / 1_024, most / 1_024);
        show(format_args!(
            "    memory: {CONCURRENCY} calls against a hostile apiserver, {}: {before_mb} MB before, {most_mb} MB at most; {} ms, \
             longest pause {} ms; {answer}",
            of.name,
            took.as_millis(),
            pulse.longest().as_millis()
        ));
        if most.saturating_sub(start_kb) / 1_024 > GROWTH_MB_MAX || pulse.longest() > PAUSE_MAX {
            excesses.push(of.name);
        }
    }
    let most = peak_resident_kb();
    show(format_args!(
        "memory: kubeconfig against a hostile apiserver: {} MB before, {} MB at most",
        start_kb / 1_024,
        most / 1_024
    ));
    assert_eq!(excesses, Vec::<&str>::new(), "over {GROWTH_MB_MAX} MB above the start, or a pause over {PAUSE_MAX:?}");
}

/// Makes the same call to several clusters at once and returns the failure of the first.
async fn attack(of: &Attack, theirs: &tokio::runtime::Handle) -> String {
    let effects = Arc::new(Rke2Effects::new());
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..CONCURRENCY {
        let hostile = Hostile::new(theirs.clone(), of.script);
        calls.spawn(run_call(effects.clone(), of.call, context(&hostile, number + 1)));
    }
    let ended = tokio::time::timeout(WAIT_MAX, calls.join_all());
    ended.await.expect("every call ends by itself").swap_remove(0)
}

fn peak_resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
