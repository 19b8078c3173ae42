//! One HTTP/2 connection on which the control plane is the client; the server is an agent, or another replica that forwards to an agent.

use std::time::Duration;

use bytes::Bytes;
use gpuaas_wire::{
    bounds::Bounded,
    session::{BODY_BYTES_MAX, Refusal},
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Full, Limited, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::{
    error::ChannelError,
    last_heard::{LastHeard, TimedReads},
    lines::parse,
};

/// Longest time for a short request, and until the response to a streaming request begins.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of HTTP/2 keep-alive pings, counted from the last received frame.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// An unanswered keep-alive ping ends the connection after this long.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Flow-control window of a whole connection, in bytes: large enough for very many narrow streams, so that none blocks the others.
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1_024 * 1_024;

/// Flow-control window of each stream of a connection.
#[derive(Clone, Copy)]
pub(crate) enum StreamWindow {
    /// 1 MiB: for a connection with few streams whose readers are fast, or that serves a single reader.
    Large,
    /// 32 KiB: for a connection that many nodes' streams share, where a paused reader must not use up the connection's window.
    Small,
}

impl StreamWindow {
    const fn bytes(self) -> u32 {
        match self {
            Self::Large => 1_024 * 1_024,
            Self::Small => 32 * 1_024,
        }
    }
}

/// The body of a request.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// A connection, or the part of one below a path prefix. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Link {
    sender: SendRequest<Body>,
    /// Prefix of every path: empty towards an agent, `/nodes/NODE/…` towards a replica.
    prefix: String,
    /// Cancelled when the connection has ended; cancelling it ends the connection.
    pub(crate) ended: CancellationToken,
    /// When the other end was last heard.
    pub(crate) last_heard: LastHeard,
}

impl Link {
    /// Starts HTTP/2 as the client on a new connection. Cancelling `ended` ends the connection.
    pub(crate) async fn open<S>(
        stream: S,
        streams: StreamWindow,
        ended: CancellationToken,
    ) -> Result<Self, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let last_heard = LastHeard::now();
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(streams.bytes())
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(TimedReads::new(stream, last_heard.clone())))
            .await
            .map_err(|error| ChannelError::Lost(error.to_string()))?;
        let end = ended.clone();
        tokio::spawn(async move {
            tokio::select! {
                result = connection => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "a connection broke");
                    }
                }
                () = end.cancelled() => {}
            }
            end.cancel();
        });
        Ok(Self { sender, prefix: String::new(), ended, last_heard })
    }

    /// Returns the same connection with `prefix` in front of every path.
    pub(crate) fn with_prefix(&self, prefix: String) -> Self {
        Self { prefix, ..self.clone() }
    }

    /// Sends a request and returns the response, whatever its status.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response<Incoming>, ChannelError> {
        let target = format!("{}{path}", self.prefix);
        let uri = Uri::builder().scheme("https").authority("node").path_and_query(target).build();
        let uri = uri.map_err(|error| ChannelError::Protocol(error.to_string()))?;
        let mut request = Request::new(body);
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
        let mut sender = self.sender.clone();
        let lost = |error: hyper::Error| ChannelError::Lost(error.to_string());
        sender.ready().await.map_err(lost)?;
        sender.send_request(request).await.map_err(lost)
    }

    /// Sends a request and returns the response if its status is a success; otherwise the refusal as an error.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response<Incoming>, ChannelError> {
        let response = self.send(method, path, headers, body).await?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }

    /// Requests a JSON value and checks its bounds.
    pub(crate) async fn get<T: DeserializeOwned + Bounded>(&self, path: &str) -> Result<T, ChannelError> {
        let response = self.request(Method::GET, path, HeaderMap::new(), empty()).await?;
        parse(&collect(response.into_body()).await?)
    }

    /// Sends a JSON value.
    pub(crate) async fn post<T: Serialize>(&self, path: &str, value: &T) -> Result<Response<Incoming>, ChannelError> {
        let bytes = serde_json::to_vec(value).map_err(|error| ChannelError::Protocol(error.to_string()))?;
        self.request(Method::POST, path, HeaderMap::new(), full(bytes)).await
    }
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) async fn collect(body: Incoming) -> Result<Bytes, ChannelError> {
    let collected = Limited::new(body, BODY_BYTES_MAX).collect().await;
    Ok(collected.map_err(|error| ChannelError::Lost(error.to_string()))?.to_bytes())
}

async fn refusal(response: Response<Incoming>) -> ChannelError {
    let status: StatusCode = response.status();
    if status == StatusCode::MISDIRECTED_REQUEST {
        // The replica no longer holds the node's channel.
        return ChannelError::NotConnected;
    }
    match collect(response.into_body()).await {
        Ok(bytes) => match parse::<Refusal>(&bytes) {
            Ok(refusal) => ChannelError::Refused(refusal),
            Err(_) => ChannelError::Protocol(format!("the response status was {status}")),
        },
        Err(error) => error,
    }
}

/// Waits at most [`REQUEST_TIMEOUT`] for an answer; a later one is [`ChannelError::Lost`].
pub(crate) async fn with_timeout<T>(answer: impl Future<Output = Result<T, ChannelError>>) -> Result<T, ChannelError> {
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, answer).await;
    answer.map_err(|_| ChannelError::Lost("it did not respond in time".to_owned()))?
}
