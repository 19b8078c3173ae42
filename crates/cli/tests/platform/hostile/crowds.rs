//! Many at once: guesses of tokens, and connections that only wait.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuaas_api_types::CreateToken;
use gpuaas_model::Entropy;
use gpuaas_trust::ApiToken;
use http::Method;
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};

use super::JSON;
use crate::{
    raw::{Answer, bearer, send},
    world::Platform,
};

/// Entropy that never repeats.
#[derive(Default)]
struct Counting(AtomicU64);

impl Entropy for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        bytes.iter_mut().zip(number.iter().cycle()).for_each(|(byte, of)| *byte = *of);
    }
}

async fn whoami(platform: &Platform, token: &str) -> Answer {
    send(platform, Method::GET, "/api/v1/whoami", &[("authorization", token)], "").await
}

/// A token that nobody has sent yet.
async fn fresh(platform: &Platform) -> String {
    let ask = CreateToken { name: "fresh".into(), role: "platform-operator".into(), project: None, ttl_seconds: None };
    format!("Bearer {}", platform.client().create_token(&ask).await.expect("made").secret)
}

#[tokio::test(flavor = "multi_thread")]
async fn junk_is_refused_without_a_penalty_and_tokens_of_its_address_are_good() {
    let platform = Platform::start(0);
    let fresh = fresh(&platform).await;
    let damaged = format!("{}x", &fresh[..fresh.len() - 1]);
    for junk in 0..120 {
        let answer = whoami(&platform, &format!("Bearer gpuaas_{junk}")).await;
        assert_eq!((answer.status, answer.code()), (401, "unauthenticated"), "{answer:?}");
    }
    assert_eq!(whoami(&platform, &damaged).await.status, 401);
    let answer = whoami(&platform, &fresh).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_guesses_tokens_is_held_back_and_the_good_tokens_of_its_address_are_not() {
    let platform = Platform::start(0);
    let (good, fresh) = (bearer(&platform), fresh(&platform).await);
    let entropy = Counting::default();
    let guess = || format!("Bearer {}", ApiToken::generate("gpuaas", &entropy).text.expose());
    assert_eq!(whoami(&platform, &good).await.status, 200);
    let mut refused = None;
    for _ in 0..300 {
        let answer = whoami(&platform, &guess()).await;
        if answer.status != 401 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("300 guesses in a few seconds are more than ten a second");
    assert_eq!((refused.status, refused.code()), (429, "rate_limited"), "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(whoami(&platform, &good).await.status, 200, "who shares the address is not locked out");
    while whoami(&platform, &guess()).await.status != 429 {}
    assert_eq!(whoami(&platform, &fresh).await.status, 200, "nor is a token that comes for the first time");
    let enrollment = json!({
        "node": crate::operations::NOBODYS_ID, "token": "x", "csr": "x", "machine_id": "x", "agent_version": "x",
    });
    let answer = send(&platform, Method::POST, "/api/v1/enroll", &[JSON], enrollment.to_string()).await;
    assert_eq!((answer.status, answer.code()), (400, "enrollment_invalid"), "machines there still enroll: {answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_asks_too_often_takes_nothing_from_the_good_tokens_behind_it() {
    let platform = Platform::start_with(0, &[("GPUAAS_REQUESTS_PER_ADDRESS", "1")]);
    let good = bearer(&platform);
    let whoami =
        async |headers: &[(&str, &str)]| send(&platform, Method::GET, "/api/v1/whoami", headers, "").await.status;
    assert_eq!(whoami(&[("authorization", &good)]).await, 200);
    let mut strangers = 0;
    while whoami(&[]).await != 429 {
        strangers += 1;
        assert!(strangers < 100, "an address is held back");
    }
    for _ in 0..20 {
        assert_eq!(whoami(&[("authorization", &good)]).await, 200, "a good token is charged to itself alone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_tries_enrollment_tokens_is_held_back() {
    let platform = Platform::start(0);
    let mut codes = Vec::new();
    for guess in 0..300 {
        let ask = json!({
            "node": crate::operations::NOBODYS_ID, "token": format!("gpuaas-enroll_{guess}"), "csr": "x",
            "machine_id": "x", "agent_version": "x",
        });
        let answer = send(&platform, Method::POST, "/api/v1/enroll", &[JSON], ask.to_string()).await;
        codes.push(answer.code().to_owned());
        if answer.status == 429 {
            break;
        }
    }
    assert_eq!(codes.pop().as_deref(), Some("rate_limited"), "{} tries", codes.len());
    assert!(codes.iter().all(|code| code == "enrollment_invalid"), "{codes:?}");
    assert!(codes.len() < 200, "guesses are held back before as many as machines that enroll: {}", codes.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_address_holds_all_connections() {
    let platform = Platform::start(0);
    let ready = platform.ready();
    let address = ready["url"].as_str().and_then(|url| url.strip_prefix("https://")).expect("a URL");
    let address: std::net::SocketAddr = address.parse().expect("an address");
    let from = async |last: u8| -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, last], 0).into()).expect("an address of the loopback");
        socket.connect(address).await.expect("the kernel takes it")
    };
    let is_closed = async |stream: &TcpStream| {
        let mut one = [0];
        let read = async { stream.readable().await.is_ok() && stream.try_read(&mut one).is_ok_and(|read| read == 0) };
        tokio::time::timeout(std::time::Duration::from_secs(5), read).await.unwrap_or(false)
    };
    let mut held = Vec::new();
    for _ in 0..256 {
        held.push(from(9).await);
    }
    assert!(is_closed(&from(9).await).await, "the 257th of one address is not taken");
    assert!(!is_closed(&held[255]).await, "the 256th is");
    assert_eq!(send(&platform, Method::GET, "/livez", &[], "").await.status, 200, "another address is served");
    drop(held);
    crate::world::eventually("its share does not come back", async || !is_closed(&from(9).await).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_that_a_stranger_invents_make_no_series_without_end() {
    let platform = Platform::start(0);
    for number in 0..50 {
        let method = Method::from_bytes(format!("BREW{number}").as_bytes()).expect("a token is a method");
        send(&platform, method, "/api/v1/nodes", &[], "").await;
    }
    let exposition = platform.client().read_text("/metrics").await.expect("metrics");
    assert!(exposition.contains("method=\"other\"") && !exposition.contains("BREW"), "{exposition}");
}
