use std::convert::Infallible;

use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::service::service_fn;
use tokio::{
    io::DuplexStream,
    time::{Instant, sleep},
};

use super::*;

/// Starts an HTTP/1.1 or HTTP/2 server that begins its response after `response_delay`, sends one chunk after each of `waits`, and never ends.
fn server(is_http2: bool, response_delay: Duration, waits: Vec<Duration>) -> DuplexStream {
    let (near, far) = tokio::io::duplex(64 * 1_024);
    let service = service_fn(move |_: Request<Incoming>| {
        let pieces = stream::iter(waits.clone()).then(|wait| async move {
            sleep(wait).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"piece")))
        });
        let body = StreamBody::new(pieces.chain(stream::pending()).boxed());
        async move {
            sleep(response_delay).await;
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    tokio::spawn(async move {
        let far = TokioIo::new(far);
        let _ = match is_http2 {
            true => hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(far, service).await,
            false => hyper::server::conn::http1::Builder::new().serve_connection(far, service).await,
        };
    });
    near
}

fn request() -> Request<Full<Bytes>> {
    Request::get("https://control-plane/").body(Full::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn server_without_a_tls_handshake_times_out() {
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tls = gpuaas_trust::pinned_client_config(&"00".repeat(32)).unwrap();
    let (address, began) = (mute.local_addr().unwrap().to_string(), Instant::now());
    let connected = timeout(CONNECT_TIMEOUT * 10, connect(&address, tls)).await;
    assert!(matches!(connected, Ok(Err(AgentError::Unreachable(_)))), "{connected:?}");
    assert_eq!(began.elapsed(), CONNECT_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn response_that_does_not_begin_or_end_times_out() {
    let (at_once, never) = (Duration::ZERO, Duration::from_secs(1 << 30));
    // This end accepts the connection and never reads from it.
    let (mute, _far) = tokio::io::duplex(1);
    let assert_times_out = async |answer: std::pin::Pin<Box<dyn Future<Output = bool>>>| {
        let began = Instant::now();
        assert!(answer.await, "the request must fail");
        assert_eq!(began.elapsed(), RESPONSE_TIMEOUT);
    };
    assert_times_out(Box::pin(async { request_streamed(mute, request()).await.is_err() })).await;
    let thinking = server(true, never, vec![]);
    assert_times_out(Box::pin(async { request_streamed(thinking, request()).await.is_err() })).await;
    for thinks in [at_once, never] {
        let endless = server(false, thinks, vec![at_once]);
        assert_times_out(Box::pin(async { request_once(endless, request(), 1_024).await.is_err() })).await;
    }
    let endless = request_streamed(server(true, at_once, vec![at_once]), request()).await.unwrap();
    assert_times_out(Box::pin(async { read_body(endless.into_body(), 1_024).await.is_err() })).await;
}

#[tokio::test(start_paused = true)]
async fn slow_response_is_read_and_a_stalled_one_times_out() {
    let slow = vec![CHUNK_TIMEOUT / 2; 20];
    let answer = request_streamed(server(true, Duration::ZERO, slow), request()).await.unwrap();
    let (mut body, began) = (answer.into_body(), Instant::now());
    for _ in 0..20 {
        assert_eq!(next_chunk(&mut body).await.unwrap().as_deref(), Some(&b"piece"[..]));
    }
    assert_eq!(began.elapsed(), CHUNK_TIMEOUT * 10);
    assert!(next_chunk(&mut body).await.is_err());
    assert_eq!(began.elapsed(), CHUNK_TIMEOUT * 11);
}
