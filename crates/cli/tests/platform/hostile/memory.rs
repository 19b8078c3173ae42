//! Memory that the control plane uses for the request bodies of many callers, and quotas that apply before a body is read.

use futures::future::{join_all, select_all};
use gpuaas_api_types::CreateProject;
use http::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use super::JSON;
use crate::{
    operations::UNUSED_ID,
    raw::{connect, send},
    world::{Platform, WAIT_MAX, eventually, show, token_request},
};

/// Connections at once; the limit for one address is 256.
const CONNECTIONS: usize = 250;
/// Largest body, in bytes, of an authenticated caller.
const BODY_BYTES: usize = 1_024 * 1_024;
/// Most that resident memory may grow, in MiB: much less than the bodies together.
const GROWTH_MIB_MAX: u64 = 160;

/// Reads a figure of the control plane's memory, in MiB: `VmRSS` is the current size, `VmHWM` the peak.
fn memory_mib(platform: &Platform, figure: &str) -> u64 {
    let pid = platform.ready()["replicas"][0]["pid"].as_u64().expect("a process");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':')).expect("a figure");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1_024
}

/// Sends [`CONNECTIONS`] equal requests at once and returns their statuses. The last byte of each is sent once all other bytes of all
/// requests have been sent.
async fn all_at_once(platform: &Platform, head: &str) -> Vec<u16> {
    let begun = join_all((0..CONNECTIONS).map(|_| async {
        let (address, mut stream) = connect(platform).await;
        let head = format!(
            "{head}host: {address}\r\nconnection: close\r\ncontent-type: {}\r\ncontent-length: {BODY_BYTES}\r\n\r\n",
            JSON.1
        );
        stream.write_all(head.as_bytes()).await.expect("the head is sent");
        stream.write_all(&vec![b' '; BODY_BYTES - 1]).await.expect("the body is sent");
        stream.flush().await.expect("the body is sent");
        stream
    }))
    .await;
    join_all(begun.into_iter().map(|mut stream| async move {
        // The control plane may have answered and closed a refused request already.
        let _ = stream.write_all(b" ").await;
        let _ = stream.flush().await;
        status(&mut stream).await
    }))
    .await
}

/// Reads the status from the first line of the answer.
async fn status(stream: &mut TlsStream<TcpStream>) -> u16 {
    let mut line = [0; 12];
    timeout(WAIT_MAX, stream.read_exact(&mut line)).await.expect("it answers in time").expect("it answers");
    let text = std::str::from_utf8(&line).expect("a text");
    text.strip_prefix("HTTP/1.1 ").and_then(|status| status.parse().ok()).expect("a status")
}

async fn assert_memory_stays_small(platform: &Platform, what: &str, head: &str, expected: &[u16]) {
    let before = memory_mib(platform, "VmRSS");
    let statuses = all_at_once(platform, head).await;
    let most = memory_mib(platform, "VmHWM");
    show(&format!("memory: {CONNECTIONS} {what} of {BODY_BYTES} bytes: {before} MiB before, {most} MiB at most"));
    assert!(statuses.iter().all(|status| expected.contains(status)), "{statuses:?}");
    assert!(most < before + GROWTH_MIB_MAX, "{what}: {before} MiB before, {most} MiB at most");
}

#[tokio::test(flavor = "multi_thread")]
async fn enrollments_with_large_bodies_take_little_memory() {
    let platform = Platform::start(0);
    // Beyond the burst limit of an address, some are refused with 429.
    assert_memory_stays_small(&platform, "enrollments", "POST /api/v1/enroll HTTP/1.1\r\n", &[413, 429]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_of_one_project_take_little_memory() {
    let platform = Platform::start(0);
    let client = platform.client();
    client.create_project(&CreateProject { name: "ours".to_owned() }).await.expect("made");
    let ask = token_request("robot", "project-member", Some("ours"));
    let token = client.create_token(&ask).await.expect("made").secret;
    let head = format!("POST /api/v1/workloads HTTP/1.1\r\nauthorization: Bearer {token}\r\n");
    assert_memory_stays_small(&platform, "bodies of one project", &head, &[400, 408, 429]).await;
}

/// Begins an enrollment with `Expect: 100-continue`; its body is not sent yet.
async fn begin_enrollment(platform: &Platform) -> TlsStream<TcpStream> {
    let (address, mut stream) = connect(platform).await;
    let head = format!(
        "POST /api/v1/enroll HTTP/1.1\r\nhost: {address}\r\ncontent-type: {}\r\nexpect: 100-continue\r\n\
         transfer-encoding: chunked\r\n\r\n",
        JSON.1
    );
    stream.write_all(head.as_bytes()).await.expect("the head is sent");
    stream.flush().await.expect("the head is sent");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_bodies_share_one_memory_budget() {
    /// Just below the limit of one body; together the bodies exceed an address's share of the budget.
    const BYTES: usize = 16_000;
    const BODIES: usize = 150;
    let platform = Platform::start(0);
    let mut held = join_all((0..BODIES).map(|_| async {
        let mut stream = begin_enrollment(&platform).await;
        assert_eq!(status(&mut stream).await, 100, "the server requests the body");
        let mut rest = [0; " Continue\r\n\r\n".len()];
        stream.read_exact(&mut rest).await.expect("an interim answer");
        stream.write_all(format!("{BYTES:x}\r\n{}\r\n", " ".repeat(BYTES)).as_bytes()).await.expect("sent");
        stream.flush().await.expect("sent");
        stream
    }))
    .await;
    let (first, ..) = select_all(held.iter_mut().map(|stream| Box::pin(status(stream)))).await;
    assert_eq!(first, 429, "unfinished bodies beyond the budget are not refused");
    let ask = json!({ "node": UNUSED_ID, "token": "x", "csr": "x", "machine_id": "x", "agent_version": "x" });
    // As long as the held bodies: a shorter one might still fit in the budget.
    let ask = format!("{ask}{}", " ".repeat(BYTES));
    let enroll = async || send(&platform, Method::POST, "/api/v1/enroll", &[JSON], ask.clone()).await;
    let answer = enroll().await;
    assert_eq!((answer.status, answer.code()), (429, "rate_limited"), "{answer:?}");
    assert_eq!(answer.headers["retry-after"], "1");
    drop(held);
    eventually("the budget is not released", async || enroll().await.code() == "enrollment_invalid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn enrollment_is_rate_limited_before_its_body_is_read() {
    let platform = Platform::start_with(0, &[("GPUAAS_REQUESTS_PER_ADDRESS", "5")]);
    let ask = json!({ "node": UNUSED_ID, "token": "x", "csr": "x", "machine_id": "x", "agent_version": "x" });
    let enroll = async || send(&platform, Method::POST, "/api/v1/enroll", &[JSON], ask.to_string()).await.status;
    while send(&platform, Method::GET, "/api/v1/nodes", &[], "").await.status != 429 {}
    assert_eq!(enroll().await, 400, "requests without a token do not limit enrollments");
    // At 5 requests per second, an address over its limit may send the next request after 200 ms.
    eventually("the server requests the body of a limited address", async || {
        while enroll().await != 429 {}
        status(&mut begin_enrollment(&platform).await).await == 429
    })
    .await;
}
