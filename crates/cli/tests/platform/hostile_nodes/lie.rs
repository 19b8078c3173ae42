//! Answers of a lying node; without a lie for a request, the node answers honestly.

use std::collections::BTreeMap;

use futures::{Stream, StreamExt, future::BoxFuture, stream};
use gpuaas_model::TaskType;
use gpuaas_trust::TaskStatement;
use gpuaas_wire::{
    session::{ConnectionKind, Hello, PROTOCOL, TaskLine},
    task::{TaskOutcome, TaskSupport},
};
use http::Response;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use serde::Serialize;
use serde_json::{Value, json};

/// The body of a request or an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;
type Answer = BoxFuture<'static, Response<Body>>;

/// Lies by request path and by task type; the answer to a task is computed from its statement.
#[derive(Default)]
pub(crate) struct Lies {
    /// Index of the replica that the node dials.
    pub(crate) replica: usize,
    pub(crate) of_path: BTreeMap<&'static str, Box<dyn Fn() -> Answer + Send + Sync>>,
    pub(crate) of_task: BTreeMap<TaskType, Box<dyn Fn(TaskStatement) -> Response<Body> + Send + Sync>>,
    /// The node's hello message, if it is a lie.
    pub(crate) hello: Option<Hello>,
}

impl Lies {
    /// Adds a lie for a request path.
    pub(crate) fn on(
        mut self,
        path: &'static str,
        answer: impl Fn() -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        let answer = move || {
            let answer = answer();
            Box::pin(async { answer }) as Answer
        };
        self.of_path.insert(path, Box::new(answer));
        self
    }

    /// Adds a lie for a task type.
    pub(crate) fn on_task(
        mut self,
        task: TaskType,
        answer: impl Fn(TaskStatement) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        self.of_task.insert(task, Box::new(answer));
        self
    }
}

pub(crate) fn body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a response that streams the items as lines of JSON.
pub(crate) fn lines<T: Serialize>(lines: impl Stream<Item = T> + Send + 'static) -> Response<Body> {
    let frames = lines.map(|line| {
        let mut json = serde_json::to_vec(&line).expect("JSON");
        json.push(b'\n');
        Ok(Frame::data(Bytes::from(json)))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// Returns a response that streams the pieces unchanged.
pub(crate) fn pieces(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    Response::new(StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece)))).boxed_unsync())
}

/// Returns the answer to a task that succeeded with this result.
pub(crate) fn succeeded(result: Value) -> Response<Body> {
    lines(stream::iter([TaskLine::Accepted, TaskLine::Ended(TaskOutcome::Succeeded { result })]))
}

/// Returns the answer to a task that never ends.
pub(crate) fn unfinished() -> Response<Body> {
    lines(stream::iter([TaskLine::Accepted]).chain(stream::pending()))
}

/// Returns the result that an honest agent would report.
pub(crate) fn honest_result(task: TaskType) -> Value {
    match task {
        TaskType::Inspect => facts(),
        TaskType::Preflight => json!({ "passed": 1, "findings": [] }),
        TaskType::ArtifactFetch => json!({ "fetched_bytes": 1, "reused_bytes": 0 }),
        TaskType::Rke2Install => json!({ "version_line": "rke2 version v1.36.3+rke2r1", "files_written": 1 }),
        _ => json!({}),
    }
}

pub(crate) fn facts() -> Value {
    json!({
        "hostname": "liar", "machine_id": "ab".repeat(16), "boot_id": "cd".repeat(16), "os": "Debian", "kernel": "6.1",
        "arch": "x86_64", "cpus": 8, "memory_bytes": 1_u64 << 36, "addresses": ["127.99.0.1"], "sandbox": true,
        "disks": [{ "path": "/var/lib", "size_bytes": 1_u64 << 40, "free_bytes": 1_u64 << 40 }],
    })
}

pub(crate) fn hello(connection: ConnectionKind) -> Hello {
    let supported = |task: &TaskType| TaskSupport { task: task.as_str().to_owned(), schemas: vec![1, 2] };
    Hello {
        agent_version: "0.1.0".into(),
        protocols: vec![PROTOCOL],
        connection,
        instance: "liar".into(),
        machine_id: "ab".repeat(16),
        boot_id: "cd".repeat(16),
        addresses: vec!["127.99.0.1".into()],
        support: TaskType::ALL.iter().map(supported).collect(),
        fence: 0,
        key_set_version: 1,
        clock: None,
        problem: None,
        ledger: None,
    }
}
