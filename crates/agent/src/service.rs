//! The paths that the control plane can request on a connection: a closed set.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use gpuaas_host::{Host, JournalFrom, notify_ready, notify_status};
use gpuaas_model::{Code, Timestamp};
use gpuaas_trust::{Envelope, SignedKeySet};
use gpuaas_wire::{
    bounds::one_line,
    session::{
        BODY_BYTES_MAX, BulkRequest, ChannelEndpoints, ConnectionKind, Hello, JOURNAL_TEXT_BYTES_MAX, JournalLine,
        JournalRequest, Observe, PROTOCOL, Refusal, TUNNEL_PORT_HEADER, TUNNEL_PORTS, TaskLine, TaskRef, path,
    },
};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, sync::broadcast::error::RecvError};
use tokio_rustls::client::TlsStream;

use crate::{
    clock::now,
    dialer::Dialer,
    error::AgentError,
    http_client::connect,
    observe,
    runner::{Accepted, Runner},
    tunnel, version,
};

/// An HTTP/2 ping is sent after this time without traffic. The control plane pings after 5 s, so this side rarely has to.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The connection ends if a ping is unanswered for this long.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) type HttpResponse = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// Answers the requests on one connection.
pub(crate) struct Service {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) runner: Arc<Runner>,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) connection: ConnectionKind,
    /// Endpoint of the control plane to which the connection was dialled, `host:port`.
    pub(crate) channel: String,
}

impl Service {
    /// Answers requests on the connection until it ends.
    pub(crate) async fn serve(self, stream: TlsStream<TcpStream>) -> Result<(), AgentError> {
        let service = Arc::new(self);
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service_fn(move |request| service.clone().answer(request)))
            .await
            .map_err(|error| AgentError::Unreachable(error.to_string()))
    }

    /// Answers a request. A refusal is returned as a response too.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<HttpResponse, Infallible> {
        let path = request.uri().path().to_owned();
        let response = match (request.method(), path.as_str()) {
            (&Method::GET, path::HELLO) => self.hello().await,
            (&Method::POST, path::KEYS) => self.keys(request).await,
            (&Method::POST, path::ENDPOINTS) => self.endpoints(request).await,
            (&Method::POST, path::TASKS) => self.task(request).await,
            (&Method::POST, path::CANCEL) => self.cancel(request).await,
            (&Method::POST, path::OBSERVE) => self.observe(request).await,
            (&Method::POST, path::CONNECTIONS) => self.connection(request).await,
            (&Method::POST, path::TUNNEL) => self.tunnel(request).await,
            (&Method::POST, path::JOURNAL) => self.journal(request).await,
            _ => Err(refusal(Code::NotFound, "the agent has no such path")),
        };
        Ok(response.unwrap_or_else(refusal_response))
    }

    async fn hello(&self) -> Result<HttpResponse, Refusal> {
        if matches!(self.connection, ConnectionKind::Control) {
            // Only a control plane that has admitted this node asks for the hello. Errors are ignored: an init other than systemd may not
            // take notifications.
            let problem = self.runner.problem().map(|problem| format!("; accepts no tasks: {}", problem.detail));
            let status = format!("connected to {}{}", self.channel, problem.unwrap_or_default());
            let _ = notify_status(&status).and_then(|()| notify_ready());
        }
        let facts =
            self.host.inventory().facts().await.map_err(|error| refusal(Code::HostFailed, &error.to_string()))?;
        Ok(json(&Hello {
            agent_version: version::version().to_owned(),
            protocols: vec![PROTOCOL],
            connection: self.connection.clone(),
            instance: self.dialer.instance.clone(),
            machine_id: facts.machine_id,
            boot_id: facts.boot_id,
            addresses: facts.addresses,
            support: self.runner.support(),
            fence: self.runner.fence().await,
            key_set_version: self.runner.key_set().version,
            clock: Some(now()),
            problem: self.runner.problem().cloned(),
            ledger: self.runner.ledger_mark().await,
        }))
    }

    async fn keys(&self, request: Request<Incoming>) -> Result<HttpResponse, Refusal> {
        let signed: SignedKeySet = read(request).await?;
        self.dialer
            .accept_key_set(&self.runner, &signed)
            .await
            .map_err(|message| refusal(Code::EnvelopeInvalid, &message))?;
        Ok(empty_response())
    }

    async fn endpoints(&self, request: Request<Incoming>) -> Result<HttpResponse, Refusal> {
        let ChannelEndpoints { channels } = read(request).await?;
        self.dialer.set_endpoints(channels).await.map_err(|message| refusal(Code::BodyInvalid, &message))?;
        Ok(empty_response())
    }

    async fn task(&self, request: Request<Incoming>) -> Result<HttpResponse, Refusal> {
        let envelope = bytes(request, Envelope::BYTES_MAX).await?;
        Ok(match self.runner.accept(&envelope).await? {
            Accepted::Known(lines) => streamed(stream::iter(lines)),
            Accepted::Running(lines) => streamed(until_end(lines)),
        })
    }

    async fn cancel(&self, request: Request<Incoming>) -> Result<HttpResponse, Refusal> {
        let TaskRef { task } = read(request).await?;
        self.runner.cancel(task);
        Ok(empty_response())
    }

    async fn observe(&self, request: Request<Incoming>) -> Result<HttpResponse, Refusal> {
        let request: Observe = read(request).await?;
        Ok(streamed(observe::lines(&self.host, &request).await))
    }

    async fn connection(&self, request: Request<Incoming>) -> Result<HttpResponse, Refusal> {
        let BulkRequest { request } = read(request).await?;
        self.dial_bulk(request);
        Ok(empty_response())
    }

    /// Dials a further connection to the replica that requested it.
    fn dial_bulk(&self, request: String) {
        let (host, runner, dialer) = (self.host.clone(), self.runner.clone(), self.dialer.clone());
        let (connection, channel) = (ConnectionKind::Bulk { request }, self.channel.clone());
        tokio::spawn(async move {
            let bulk = async {
                let stream = connect(&channel, dialer.tls().await?).await?;
                Self { host, runner, dialer, connection, channel }.serve(stream).await
            };
            if let Err(error) = bulk.await {
                tracing::debug!(%error, "a bulk connection broke");
            }
        });
    }

    async fn tunnel(&self, request: Request<Incoming>) -> Result<HttpResponse, Refusal> {
        let port = request.headers().get(TUNNEL_PORT_HEADER).and_then(|port| port.to_str().ok()?.parse::<u16>().ok());
        let port = port.filter(|port| TUNNEL_PORTS.contains(port));
        let port = port.ok_or_else(|| refusal(Code::Forbidden, "tunnels to that port are not allowed"))?;
        let address = SocketAddr::new(self.host.inventory().address(), port);
        let body = tunnel::open(address, request.into_body()).await;
        let body = body.map_err(|error| refusal(Code::ClusterUnreachable, &format!("{address}: {error}")))?;
        Ok(Response::new(body.boxed_unsync()))
    }

    async fn journal(&self, request: Request<Incoming>) -> Result<HttpResponse, Refusal> {
        let journal_request: JournalRequest = read(request).await?;
        if !observe::is_observable(&journal_request.unit) {
            return Err(refusal(Code::Forbidden, "the journal of that unit is not available"));
        }
        let from = match (journal_request.since, journal_request.tail) {
            (_, Some(lines)) => JournalFrom::Tail(lines),
            (Some(since), None) => JournalFrom::Since(since),
            (None, None) => JournalFrom::Start,
        };
        let lines = self.host.units().journal(&journal_request.unit, from, journal_request.follow).await;
        let lines = lines.map_err(|error| refusal(Code::HostFailed, &error.to_string()))?;
        // Of the last lines, only those since the requested time.
        let since = journal_request.since.unwrap_or(Timestamp::from_millis(i64::MIN));
        let lines = lines.filter(move |line| std::future::ready(line.at >= since));
        Ok(streamed(lines.map(|line| JournalLine { at: line.at, text: one_line(line.text, JOURNAL_TEXT_BYTES_MAX) })))
    }
}

/// Streams the lines of a running task up to its end. A subscriber that lags loses progress lines, never the end, which is sent last.
pub(crate) fn until_end(lines: tokio::sync::broadcast::Receiver<TaskLine>) -> impl Stream<Item = TaskLine> + Send {
    stream::unfold(Some(lines), |lines| async move {
        let mut lines = lines?;
        loop {
            match lines.recv().await {
                Ok(line @ (TaskLine::Ended(_) | TaskLine::Interrupted)) => return Some((line, None)),
                Ok(line) => return Some((line, Some(lines))),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    })
}

async fn bytes(request: Request<Incoming>, bytes_max: usize) -> Result<Bytes, Refusal> {
    let body = Limited::new(request.into_body(), bytes_max).collect().await;
    Ok(body.map_err(|_| refusal(Code::BodyTooLarge, "the body is too long or incomplete"))?.to_bytes())
}

async fn read<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Refusal> {
    let bytes = bytes(request, BODY_BYTES_MAX).await?;
    serde_json::from_slice(&bytes).map_err(|error| refusal(Code::BodyInvalid, &error.to_string()))
}

fn streamed<T: Serialize>(lines: impl Stream<Item = T> + Send + 'static) -> HttpResponse {
    let frames = lines.map(|line| {
        let mut json = serde_json::to_vec(&line).map_err(std::io::Error::other)?;
        json.push(b'\n');
        Ok(Frame::data(Bytes::from(json)))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

fn json(value: &impl Serialize) -> HttpResponse {
    full_response(Bytes::from(serde_json::to_vec(value).unwrap_or_default()))
}

fn empty_response() -> HttpResponse {
    full_response(Bytes::new())
}

fn full_response(bytes: Bytes) -> HttpResponse {
    Response::new(Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
}

fn refusal(code: Code, message: &str) -> Refusal {
    Refusal { code, message: message.to_owned() }
}

fn refusal_response(refusal: Refusal) -> HttpResponse {
    let status = StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY);
    let mut answer = json(&refusal);
    *answer.status_mut() = status;
    answer
}
