//! Traces: the control plane sends them to a collector, and one trace follows a deployment from its request to its tasks, also after a restart.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use http::Response;
use http_body_util::{BodyExt, Empty};
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{collector::trace::v1::ExportTraceServiceRequest, trace::v1::Span};
use prost::Message;
use tokio::net::TcpListener;

use crate::{
    fleet::Fleet,
    restarts::{assert_succeeds, prepare_deployment, until_running},
    single_server::Start,
    world::{CLUSTERS, Platform, build_programs, eventually},
};

const CORRELATION: &str = "0198c0de-7a3b-7c11-9b54-0242ac1200aa";

/// The receiving end of a collector.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
    /// While it is true, a request gets no response.
    is_silent: Arc<AtomicBool>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let is_silent: Arc<AtomicBool> = Arc::default();
        let (received, silence) = (spans.clone(), is_silent.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (received, silence) = (received.clone(), silence.clone());
                let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let (received, silence) = (received.clone(), silence.clone());
                    async move {
                        assert_eq!(request.uri().path(), "/v1/traces");
                        let body = request.into_body().collect().await.expect("a body").to_bytes();
                        let sent = ExportTraceServiceRequest::decode(body).expect("traces in OTLP");
                        let of_resources = sent.resource_spans.into_iter().flat_map(|of| of.scope_spans);
                        received.lock().expect("a lock").extend(of_resources.flat_map(|of| of.spans));
                        if silence.load(Relaxed) {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url, spans, is_silent }
    }

    /// Returns settings of a control plane that sends its traces here soon after they end.
    fn settings(&self) -> [(&'static str, &str); 2] {
        [("GPUAAS_OTLP_ENDPOINT", &self.url), ("OTEL_BSP_SCHEDULE_DELAY", "100")]
    }

    /// Returns the spans of a trace.
    fn trace(&self, id: &str) -> Vec<Span> {
        let spans = self.spans.lock().expect("a lock");
        spans
            .iter()
            .filter(|span| span.trace_id.iter().map(|byte| format!("{byte:02x}")).eq(pairs(id)))
            .cloned()
            .collect()
    }
}

/// Returns the bytes of a UUID, each as two hex digits.
fn pairs(uuid: &str) -> impl Iterator<Item = String> {
    let digits: Vec<char> = uuid.chars().filter(|digit| *digit != '-').collect();
    (0..digits.len() / 2).map(move |at| digits[2 * at..2 * at + 2].iter().collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_is_one_trace_from_its_request_to_its_tasks() {
    let collector = Collector::start().await;
    let platform = Platform::with_release(1, &[("GPUAAS_OTLP_ENDPOINT", &collector.url)]).await;
    let client = platform.client().with_correlation_id(CORRELATION);
    let started = client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
    assert_eq!(platform.await_end(&started).await.operation.state, "succeeded");
    eventually("the operation's span does not arrive", async || {
        collector.trace(CORRELATION).iter().any(|span| span.name == "operation")
    })
    .await;
    let trace = collector.trace(CORRELATION);
    let names: BTreeSet<&str> = trace.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["operation", "request", "step", "task"]), "kinds of spans in the trace");
    let parent =
        |span: &Span| trace.iter().find(|other| other.span_id == span.parent_span_id).map(|of| of.name.as_str());
    for span in &trace {
        let expected = match span.name.as_str() {
            "step" => Some("operation"),
            "task" => Some("step"),
            _ => None,
        };
        assert_eq!(parent(span), expected, "{span:?}");
        assert_eq!(span.parent_span_id.is_empty(), expected.is_none(), "{span:?}");
    }
    let secret = platform.ready()["token"].as_str().expect("a token").to_owned();
    assert!(!format!("{:?}", collector.spans.lock().expect("a lock")).contains(&secret), "a span contains a token");
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_stays_in_its_trace_after_a_restart() {
    let _permit = CLUSTERS.acquire().await.expect("never closed");
    let collector = Collector::start().await;
    let mut fleet = Fleet::start_with_settings(2, &collector.settings()).await;
    let client = fleet.client();
    let deploy = prepare_deployment(&client).await;
    let started = client.with_correlation_id(CORRELATION).deploy_workload(&deploy).await.expect("accepted");
    let client = fleet.client();
    until_running(&client, &started.operation.id, "server-1/install").await;
    fleet.kill_server();
    let is_operation = |span: &Span| span.name == "operation";
    assert!(!collector.trace(CORRELATION).iter().any(is_operation), "the operation ended before the restart");
    fleet.start_server();
    assert_succeeds(&client, &started.operation.id).await;
    eventually("the operation's span does not arrive", async || collector.trace(CORRELATION).iter().any(is_operation))
        .await;
    let trace = collector.trace(CORRELATION);
    let operation = trace.iter().find(|span| is_operation(span)).expect("it has arrived");
    let steps = trace.iter().filter(|span| span.name == "step" && span.parent_span_id == operation.span_id);
    assert!(steps.count() > 1, "{trace:?}");
}

/// Starts a control plane with these settings, and makes a request with [`CORRELATION`] once the collector has received something.
async fn send_after_the_first_batch(collector: &Collector, log: &str) {
    tokio::task::block_in_place(build_programs);
    let folder = tempfile::tempdir().expect("a folder");
    let settings = collector.settings().into_iter().chain([("GPUAAS_LOG", log)]);
    let environment = settings.map(|(name, value)| (name, value.to_owned())).collect();
    let start = Start { environment, ..Start::default() };
    let served = tokio::task::block_in_place(|| start.on(&folder.path().join("data"))).expect("it serves");
    let client = served.client(&served.first_admin().await).with_correlation_id(CORRELATION);
    eventually("no span arrives", async || !collector.spans.lock().expect("a lock").is_empty()).await;
    collector.is_silent.store(false, Relaxed);
    client.whoami().await.expect("an answer");
    eventually("no later span arrives", async || !collector.trace(CORRELATION).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_that_does_not_answer_once_gets_later_traces() {
    let collector = Collector::start().await;
    collector.is_silent.store(true, Relaxed);
    send_after_the_first_batch(&collector, "info").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log_level_does_not_filter_traces() {
    send_after_the_first_batch(&Collector::start().await, "off").await;
}
