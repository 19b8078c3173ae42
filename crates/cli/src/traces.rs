//! Sends traces to an OpenTelemetry collector, by OTLP over HTTP. A trace has the correlation id of its request as its id, so an operation, its
//! steps and its tasks are in the same trace as the request, also after a restart.
//!
//! Guarantees: without a collector nothing is recorded. A collector that cannot be reached or does not answer delays nothing: what does not
//! fit into the queue is dropped, with a warning in the log.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use async_trait::async_trait;
use bytes::Bytes;
use gpuaas_client::ClientError;
use gpuaas_model::CorrelationId;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tokio::runtime::Handle;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{layer, registry::LookupSpan};

/// Path of traces on a collector, appended to an endpoint without a path.
const TRACES_PATH: &str = "/v1/traces";
/// Longest response of a collector, in bytes.
const RESPONSE_BYTES_MAX: usize = 64 * 1_024;
/// Longest wait for a collector's response, the default of OTLP. Without a limit, one that never answers would stop the export for ever.
const EXPORT_MAX: Duration = Duration::from_secs(10);
/// Time to send what is left when the process ends.
const LAST_EXPORT_MAX: Duration = Duration::from_secs(2);
/// Field of spans that begin a trace.
const CORRELATION: &str = "correlation";

/// Where traces are sent.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    pub(crate) endpoint: Uri,
    /// PEM file with the authorities that an https endpoint is verified against.
    pub(crate) ca_file: PathBuf,
}

impl Collector {
    /// Reads the authorities from their file; none without TLS.
    pub(crate) fn roots(&self) -> Result<RootCertStore, ClientError> {
        let mut roots = RootCertStore::empty();
        if self.endpoint.scheme_str() == Some("https") {
            let refused =
                |why: String| ClientError::InvalidSetting(format!("--otlp-ca-file {}: {why}", self.ca_file.display()));
            let all = CertificateDer::pem_file_iter(&self.ca_file).map_err(|error| refused(error.to_string()))?;
            let (added, _) = roots.add_parsable_certificates(all.filter_map(Result::ok));
            if added == 0 {
                return Err(refused("the file contains no certificate".to_owned()));
            }
        }
        Ok(roots)
    }
}

/// The running export.
pub(crate) struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends what is left, within [`LAST_EXPORT_MAX`].
    pub(crate) fn send_rest(self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_EXPORT_MAX) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// Parses the address of a collector.
pub(crate) fn parse_endpoint(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => Err("it must not contain a user name".to_owned()),
        Some(_) if ["http", "https"].contains(&scheme) => Ok(uri),
        _ => Err("expected http://HOST:PORT or https://HOST:PORT".to_owned()),
    }
}

/// Starts the export, and returns the layer that records spans for it. Called within the runtime, which sends the requests.
pub(crate) fn start<S>(collector: &Collector) -> anyhow::Result<(impl layer::Layer<S> + use<S>, Traces)>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let mut url = collector.endpoint.to_string();
    if collector.endpoint.path() == "/" {
        url = format!("{}{TRACES_PATH}", url.trim_end_matches('/'));
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Http::new(collector)?)
        .with_endpoint(url)
        .build()
        .context("the exporter of traces")?;
    Ok(record_for(exporter))
}

fn record_for<S, E>(exporter: E) -> (impl layer::Layer<S> + use<S, E>, Traces)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    E: SpanExporter + 'static,
{
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(WithoutAssumedParents(exporter))
        .with_resource(Resource::builder().with_service_name("gpuaas").build())
        .build();
    let recorded = tracing_opentelemetry::layer().with_tracer(provider.tracer("gpuaas"));
    (ByCorrelation(recorded), Traces(provider))
}

/// Sends the exporter's requests on the runtime; the exporter itself runs on a thread without one.
#[derive(Debug)]
struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
}

impl Http {
    fn new(collector: &Collector) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(collector.roots()?)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, runtime: Handle::current() })
    }
}

#[async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.client.request(request.map(Full::new));
        let answer = async move {
            let (head, body) = sent.await?.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        };
        self.runtime.spawn(async { tokio::time::timeout(EXPORT_MAX, answer).await? }).await?
    }
}

/// Makes the correlation id the id of the traces. A trace gets its id from a parent, so spans that begin one get a parent that does not exist;
/// [`WithoutAssumedParents`] removes it again.
struct ByCorrelation<L>(L);

impl<S, L> layer::Layer<S> for ByCorrelation<L>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    L: layer::Layer<S>,
{
    fn on_layer(&mut self, subscriber: &mut S) {
        self.0.on_layer(subscriber);
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: layer::Context<'_, S>) {
        let is_root = attributes.is_root() || attributes.is_contextual() && context.lookup_current().is_none();
        let assumed = is_root.then(|| correlation(attributes)).flatten().map(assumed_parent);
        let _attached = assumed.map(|parent| Context::new().with_remote_span_context(parent).attach());
        self.0.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: layer::Context<'_, S>) {
        self.0.on_record(id, values, context);
    }

    fn on_follows_from(&self, id: &span::Id, follows: &span::Id, context: layer::Context<'_, S>) {
        self.0.on_follows_from(id, follows, context);
    }

    fn on_event(&self, event: &Event<'_>, context: layer::Context<'_, S>) {
        self.0.on_event(event, context);
    }

    fn on_enter(&self, id: &span::Id, context: layer::Context<'_, S>) {
        self.0.on_enter(id, context);
    }

    fn on_exit(&self, id: &span::Id, context: layer::Context<'_, S>) {
        self.0.on_exit(id, context);
    }

    fn on_close(&self, id: span::Id, context: layer::Context<'_, S>) {
        self.0.on_close(id, context);
    }
}

/// Returns the correlation id among a new span's fields.
fn correlation(attributes: &span::Attributes<'_>) -> Option<CorrelationId> {
    #[derive(Default)]
    struct Found(Option<CorrelationId>);
    impl Visit for Found {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == CORRELATION {
                self.0 = format!("{value:?}").parse().ok();
            }
        }
    }
    let mut found = Found::default();
    attributes.record(&mut found);
    found.0
}

fn assumed_parent(correlation: CorrelationId) -> SpanContext {
    let trace = TraceId::from_bytes(*correlation.as_uuid().as_bytes());
    SpanContext::new(trace, assumed_span(trace), TraceFlags::SAMPLED, true, TraceState::NONE)
}

/// Returns the id of the parent that spans of this trace get until they are exported.
fn assumed_span(trace: TraceId) -> SpanId {
    let [.., a, b, c, d, e, f, g, h] = trace.to_bytes();
    SpanId::from_bytes([a, b, c, d, e, f, g, h])
}

/// Exports spans whose parent does not exist as spans without a parent.
#[derive(Debug)]
struct WithoutAssumedParents<E>(E);

impl<E: SpanExporter> SpanExporter for WithoutAssumedParents<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for span in &mut batch {
            if span.parent_span_id == assumed_span(span.span_context.trace_id()) {
                (span.parent_span_id, span.parent_span_is_remote) = (SpanId::INVALID, false);
            }
        }
        self.0.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_a_collector_with_tls_needs_a_file_with_certificates() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let roots = |endpoint: &'static str, ca_file: &Path| {
            Collector { endpoint: Uri::from_static(endpoint), ca_file: ca_file.to_owned() }.roots()
        };
        let missing = Path::new("/no/such/file");
        assert!(roots("http://127.0.0.1:4318", missing).expect("not read").is_empty());
        for file in [missing, file.path()] {
            let refused = roots("https://127.0.0.1:4318", file).expect_err("no certificate").to_string();
            assert!(refused.contains(&format!("--otlp-ca-file {}", file.display())), "{refused}");
        }
    }
}
