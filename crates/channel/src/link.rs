//! One HTTP/2 connection on which the control plane asks: an agent, or another replica on an agent's behalf.

use std::time::Duration;

use bytes::Bytes;
use gpuaas_wire::{
    bounds::Said,
    session::{BODY_BYTES_MAX, Refusal},
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Full, Limited, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::{channel::ChannelError, lines::read};

/// A beat goes out when nothing was heard for this long.
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// An unanswered beat ends the connection after this long.
const BEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of all streams together that wait to be read: of very many narrow ones, so that none holds up the others.
const WAITING_BYTES_MAX: u32 = 16 * 1_024 * 1_024;

/// How much of each stream of a connection may wait to be read.
#[derive(Clone, Copy)]
pub(crate) enum Streams {
    /// Much: a connection of few streams, whose reader is fast or wanted it so.
    Wide,
    /// Little: many nodes' streams share the connection, and a reader who pauses must leave room for the others.
    Narrow,
}

impl Streams {
    const fn waiting_bytes_max(self) -> u32 {
        match self {
            Self::Wide => 1_024 * 1_024,
            Self::Narrow => 32 * 1_024,
        }
    }
}

/// The body of a request.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// A connection, or a part of one. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Link {
    sender: SendRequest<Body>,
    /// What every path begins with: nothing towards an agent, the agent's name towards a replica.
    prefix: String,
    /// Cancelled when the connection has ended; cancelling it ends the connection.
    pub(crate) ended: CancellationToken,
}

impl Link {
    /// Begins HTTP/2 on a fresh connection, as its client. Cancelling `ended` ends it.
    pub(crate) async fn open<S>(stream: S, streams: Streams, ended: CancellationToken) -> Result<Self, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(BEAT_EVERY)
            .keep_alive_timeout(BEAT_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(streams.waiting_bytes_max())
            .initial_connection_window_size(WAITING_BYTES_MAX)
            .handshake(TokioIo::new(stream))
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
        Ok(Self { sender, prefix: String::new(), ended })
    }

    /// The same connection with every path below `prefix`.
    pub(crate) fn below(&self, prefix: String) -> Self {
        Self { prefix, ..self.clone() }
    }

    /// Sends a request and returns whatever is answered.
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

    /// Sends a request and returns its answer if it is a success.
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

    /// Asks for a value.
    pub(crate) async fn get<T: DeserializeOwned + Said>(&self, path: &str) -> Result<T, ChannelError> {
        let response = self.request(Method::GET, path, HeaderMap::new(), empty()).await?;
        read(&collect(response.into_body()).await?)
    }

    /// Sends a value.
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
        // A replica that holds the node's channel no more.
        return ChannelError::NotConnected;
    }
    match collect(response.into_body()).await {
        Ok(bytes) => match read::<Refusal>(&bytes) {
            Ok(refusal) => ChannelError::Refused(refusal),
            Err(_) => ChannelError::Protocol(format!("the answer was {status}")),
        },
        Err(error) => error,
    }
}
