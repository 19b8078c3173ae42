//! One connection of a node on which the control plane is the HTTP/2 client.

use std::time::Duration;

use bytes::Bytes;
use gpuaas_model::NodeId;
use gpuaas_wire::session::{BODY_BYTES_MAX, Hello, Refusal, path};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Full, Limited, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::channel::ChannelError;

/// A beat goes out when nothing was heard for this long.
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// An unanswered beat ends the connection after this long.
const BEAT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for the first answer of a new connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// The body of a request to an agent.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// A connection on which the agent answers.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) node: NodeId,
    pub(crate) hello: Hello,
    sender: SendRequest<Body>,
    /// Cancelled when the connection has ended; cancelling it ends the connection.
    pub(crate) ended: CancellationToken,
}

impl Session {
    /// Turns the roles of a fresh connection around and asks who is there.
    pub(crate) async fn open<S>(node: NodeId, stream: S) -> Result<Self, ChannelError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(BEAT_EVERY)
            .keep_alive_timeout(BEAT_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ChannelError::Lost(error.to_string()))?;
        let ended = CancellationToken::new();
        let end = ended.clone();
        tokio::spawn(async move {
            tokio::select! {
                result = connection => {
                    if let Err(error) = result {
                        tracing::debug!(%node, %error, "a node's connection broke");
                    }
                }
                () = end.cancelled() => {}
            }
            end.cancel();
        });
        let guard = ended.clone().drop_guard();
        let mut session = Self { node, hello: unknown(), sender, ended };
        let hello = tokio::time::timeout(HELLO_TIMEOUT, session.get::<Hello>(path::HELLO));
        session.hello = hello.await.map_err(|_| ChannelError::Lost("it said no hello".to_owned()))??;
        guard.disarm();
        Ok(session)
    }

    /// Whether the connection still answers, asked with its own hello.
    pub(crate) async fn answers_within(&self, timeout: Duration) -> bool {
        matches!(tokio::time::timeout(timeout, self.get::<Hello>(path::HELLO)).await, Ok(Ok(_)))
    }

    /// Sends a request and returns its answer if it is a success.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        body: Body,
    ) -> Result<Response<Incoming>, ChannelError> {
        self.request_with(method, path, body, |request| request).await
    }

    /// The same, with headers of the caller's.
    pub(crate) async fn request_with(
        &self,
        method: Method,
        path: &str,
        body: Body,
        headers: impl FnOnce(http::request::Builder) -> http::request::Builder,
    ) -> Result<Response<Incoming>, ChannelError> {
        let uri = Uri::builder().scheme("https").authority("node").path_and_query(path).build();
        let uri = uri.map_err(|error| ChannelError::Protocol(error.to_string()))?;
        let request = headers(Request::builder().method(method).uri(uri)).body(body);
        let request = request.map_err(|error| ChannelError::Protocol(error.to_string()))?;
        let mut sender = self.sender.clone();
        let lost = |error: hyper::Error| ChannelError::Lost(error.to_string());
        sender.ready().await.map_err(lost)?;
        let response = sender.send_request(request).await.map_err(lost)?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refusal(response).await)
    }

    /// Asks for a value.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ChannelError> {
        let response = self.request(Method::GET, path, empty()).await?;
        let bytes = collect(response.into_body()).await?;
        serde_json::from_slice(&bytes).map_err(|error| ChannelError::Protocol(error.to_string()))
    }

    /// Sends a value whose answer does not matter beyond its status.
    pub(crate) async fn post<T: Serialize>(&self, path: &str, value: &T) -> Result<Response<Incoming>, ChannelError> {
        let bytes = serde_json::to_vec(value).map_err(|error| ChannelError::Protocol(error.to_string()))?;
        self.request(Method::POST, path, full(bytes)).await
    }
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

async fn collect(body: Incoming) -> Result<Bytes, ChannelError> {
    let collected = Limited::new(body, BODY_BYTES_MAX).collect().await;
    Ok(collected.map_err(|error| ChannelError::Lost(error.to_string()))?.to_bytes())
}

async fn refusal(response: Response<Incoming>) -> ChannelError {
    let status: StatusCode = response.status();
    match collect(response.into_body()).await {
        Ok(bytes) => match serde_json::from_slice::<Refusal>(&bytes) {
            Ok(refusal) => ChannelError::Refused(refusal),
            Err(_) => ChannelError::Protocol(format!("the agent answered {status}")),
        },
        Err(error) => error,
    }
}

/// Stands in a session until its hello came; no session leaves [`Session::open`] with it.
fn unknown() -> Hello {
    Hello {
        agent_version: String::new(),
        protocols: Vec::new(),
        connection: gpuaas_wire::session::ConnectionKind::Control,
        instance: String::new(),
        machine_id: String::new(),
        boot_id: String::new(),
        addresses: Vec::new(),
        support: Vec::new(),
        fence: 0,
        key_set_version: 0,
        unacknowledged: Vec::new(),
    }
}
