//! The rest of a request that is refused before its end.
//!
//! Over HTTP/1 a client writes its body before it reads the answer. A connection that is closed with bytes unread is reset, and the reset
//! takes the answer with it: the client sees a broken pipe instead of the problem. So what is left is read and thrown away, within bounds.
//! A client that asks first (`Expect: 100-continue`) and was not told to go on has sent nothing and is left alone; HTTP/2 ends one stream
//! without the others.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderValue, StatusCode, Version, header},
    middleware::Next,
    response::Response,
};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;

use crate::state::ApiState;

/// Bytes of a refused request that are read for the sake of its answer.
const BYTES_MAX: usize = 64 * 1_024 * 1_024;
/// How long that may take.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Reads what a refusal left unread, then answers.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
        return next.run(request).await;
    }
    let asks_first = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let body = Lent(Arc::new(Mutex::new(Shared { body, is_begun: false })));
    let mut response = next.run(Request::from_parts(parts, Body::new(body.clone()))).await;
    // Whoever was too slow already gets no more time: the connection ends with the answer.
    if response.status() == StatusCode::REQUEST_TIMEOUT {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    } else if !response.status().is_success() && (body.is_begun() || !asks_first) {
        let ports = state.engine.ports();
        tokio::select! {
            () = drain(body) => {}
            () = ports.runtime.sleep_until(ports.clock.now().plus(TIME_MAX)) => {}
        }
    }
    response
}

async fn drain(mut body: Lent) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > BYTES_MAX {
            return;
        }
    }
}

/// A body whose rest can be read by another than the one it was given to.
#[derive(Clone)]
struct Lent(Arc<Mutex<Shared>>);

struct Shared {
    body: Body,
    /// Whether anybody has asked for any of it: that is what sends `100 Continue`.
    is_begun: bool,
}

impl Lent {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_begun(&self) -> bool {
        self.shared().is_begun
    }
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut shared = self.shared();
        shared.is_begun = true;
        Pin::new(&mut shared.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.shared().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.shared().body.size_hint()
    }
}
