//! Many requests at once: guessed tokens, and connections that only wait.

use futures::{StreamExt, stream};
use gpuaas_api_types::RegisterNode;
use gpuaas_test_support::SeededEntropy;
use gpuaas_trust::{EnrollmentString, NodeKey, TokenKey};
use http::Method;
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};

use super::JSON;
use crate::{
    raw::{HttpResponse, bearer, send},
    world::{Platform, token_request},
};

async fn whoami(platform: &Platform, token: &str) -> HttpResponse {
    send(platform, Method::GET, "/api/v1/whoami", &[("authorization", token)], "").await
}

/// Number of guesses; below the request limit of one address.
const GUESSES: usize = 2_000;
/// Guesses in flight at once.
const GUESSES_AT_ONCE: usize = 32;
/// A token in the format of an earlier version, with the checksum that was valid there.
const OLD_FORM: &str = "gpuaas_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc0STEBP";

async fn enroll(platform: &Platform, node: &str, token: &str, csr: &str) -> HttpResponse {
    let ask = json!({ "node": node, "token": token, "csr": csr, "machine_id": "x", "agent_version": "x" });
    send(platform, Method::POST, "/api/v1/enroll", &[JSON], ask.to_string()).await
}

/// Registers a node and returns its enrollment string.
async fn string(platform: &Platform, name: &str) -> EnrollmentString {
    let ask = RegisterNode { name: name.into(), ..RegisterNode::default() };
    let registered = platform.client().register_node(&ask).await.expect("registered");
    EnrollmentString::decode(&registered.enrollment.string).expect("a string")
}

/// Redeems an enrollment string as the node's machine does.
async fn redeem(platform: &Platform, string: &EnrollmentString) -> HttpResponse {
    let csr = NodeKey::generate().expect("a key").request_pem().expect("a request");
    enroll(platform, &string.node.to_string(), string.token.expose(), &csr).await
}

/// Creates a token that no request has used yet, and returns its `Authorization` value.
async fn fresh_token(platform: &Platform, name: &str) -> String {
    let ask = token_request(name, "platform-operator", None);
    format!("Bearer {}", platform.client().create_token(&ask).await.expect("made").secret)
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_tokens_are_refused_and_valid_tokens_of_their_address_work() {
    let platform = Platform::start(0);
    let fresh = fresh_token(&platform, "fresh").await;
    let damaged = format!("{}x", &fresh[..fresh.len() - 1]);
    for junk in 0..120 {
        let answer = whoami(&platform, &format!("Bearer gpuaas_{junk}")).await;
        assert_eq!((answer.status, answer.code()), (401, "unauthenticated"), "{answer:?}");
    }
    for junk in [damaged, format!("Bearer {OLD_FORM}")] {
        let answer = whoami(&platform, &junk).await;
        assert_eq!((answer.status, answer.code()), (401, "unauthenticated"), "{answer:?}");
        let text = format!("{} {}", answer.body["detail"], answer.body["next"]);
        assert!(text.contains("did not issue the token") && text.contains("ask an admin"), "{text}");
    }
    let answer = whoami(&platform, &fresh).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn well_formed_guesses_delay_no_token_and_no_enrollment_of_their_address() {
    let mut platform = Platform::start(0);
    let (fresh, machine) = (fresh_token(&platform, "fresh").await, string(&platform, "gpu-01").await);
    // After the restart the control plane has seen neither the token nor the enrollment string.
    tokio::task::block_in_place(|| platform.restart(0));
    let (key, entropy) = (TokenKey::new(&[7; TokenKey::BYTES]), SeededEntropy::of_seed(1));
    let made_up = |prefix: &str| key.generate(prefix, &entropy).text;
    let guess = async || whoami(&platform, &format!("Bearer {}", made_up("gpuaas").expose())).await;
    let known = answer_amid_guesses(guess, whoami(&platform, &fresh), (401, "unauthenticated")).await;
    assert_eq!(known.status, 200, "guesses delay a valid token: {known:?}");
    let guess = async || enroll(&platform, crate::operations::UNUSED_ID, made_up("gpuaas-enroll").expose(), "x").await;
    let enrolled = answer_amid_guesses(guess, redeem(&platform, &machine), (400, "enrollment_invalid")).await;
    assert_eq!(enrolled.status, 200, "guesses delay an enrollment: {enrolled:?}");
}

/// Returns the answer to an honest request sent amid guesses, and checks that each guess is answered as junk is.
async fn answer_amid_guesses(
    guess: impl AsyncFn() -> HttpResponse,
    honest: impl Future<Output = HttpResponse>,
    junk: (u16, &str),
) -> HttpResponse {
    let half = async || {
        let guesses = stream::iter(0..GUESSES / 2).map(|_| guess()).buffer_unordered(GUESSES_AT_ONCE);
        guesses.filter(|answer| std::future::ready((answer.status, answer.code()) != junk)).collect::<Vec<_>>().await
    };
    let first = half().await;
    let (second, honest) = tokio::join!(half(), honest);
    // A failed honest request is reported by the caller, because it matters more than the guesses.
    if honest.status == 200 {
        let other: Vec<_> = first.iter().chain(&second).collect();
        assert!(other.is_empty(), "guesses differ from junk: {} of {GUESSES}, {:?}", other.len(), other[0]);
    }
    honest
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_revoked_token_is_limited_and_delays_no_other_token_of_its_address() {
    let mut platform = Platform::start(0);
    let (ended, fresh) = (fresh_token(&platform, "ended").await, fresh_token(&platform, "fresh").await);
    let (used, machine) = (string(&platform, "gpu-01").await, string(&platform, "gpu-02").await);
    let tokens = platform.client().list_tokens(None).await.expect("listed").items;
    let id = &tokens.iter().find(|token| token.name == "ended").expect("it is listed").id;
    platform.client().revoke_token(id).await.expect("revoked");
    assert_eq!(redeem(&platform, &used).await.status, 200);
    // After the restart the control plane has seen none of these tokens and strings.
    tokio::task::block_in_place(|| platform.restart(0));
    let mut answers = Vec::new();
    while answers.last().is_none_or(|(status, _)| *status != 429) {
        let answer = whoami(&platform, &ended).await;
        answers.push((answer.status, answer.body));
        assert!(answers.len() < 300, "no rate limit applies");
    }
    answers.pop();
    assert!(answers.iter().all(|(status, _)| *status == 401), "{answers:?}");
    assert_eq!(whoami(&platform, &fresh).await.status, 200, "another token is limited too");
    let mut codes = Vec::new();
    while codes.last().is_none_or(|code| code != "rate_limited") {
        codes.push(redeem(&platform, &used).await.code().to_owned());
        assert!(codes.len() < 300, "no rate limit applies");
    }
    codes.pop();
    assert!(codes.iter().all(|code| code == "enrollment_used"), "{codes:?}");
    assert_eq!(redeem(&platform, &machine).await.status, 200, "another machine is limited too");
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limited_address_does_not_limit_its_valid_tokens() {
    let platform = Platform::start_with(0, &[("GPUAAS_REQUESTS_PER_ADDRESS", "1")]);
    let good = bearer(&platform);
    let whoami =
        async |headers: &[(&str, &str)]| send(&platform, Method::GET, "/api/v1/whoami", headers, "").await.status;
    assert_eq!(whoami(&[("authorization", &good)]).await, 200);
    let mut requests = 0;
    while whoami(&[]).await != 429 {
        requests += 1;
        assert!(requests < 100, "the address is never limited");
    }
    for _ in 0..20 {
        assert_eq!(whoami(&[("authorization", &good)]).await, 200, "a valid token has its own limit");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_address_can_take_all_connections() {
    let platform = Platform::start(0);
    let ready = platform.ready();
    let address = ready["url"].as_str().and_then(|url| url.strip_prefix("https://")).expect("a URL");
    let address: std::net::SocketAddr = address.parse().expect("an address");
    let from = async |last: u8| -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, last], 0).into()).expect("an address of the loopback");
        socket.connect(address).await.expect("connected")
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
    assert!(is_closed(&from(9).await).await, "the 257th connection of one address stays open");
    assert!(!is_closed(&held[255]).await, "the 256th connection is closed");
    assert_eq!(send(&platform, Method::GET, "/livez", &[], "").await.status, 200, "another address is served");
    drop(held);
    crate::world::eventually("closed connections are still counted", async || !is_closed(&from(9).await).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_methods_create_no_metric_series() {
    let platform = Platform::start(0);
    for number in 0..50 {
        let method = Method::from_bytes(format!("BREW{number}").as_bytes()).expect("a method");
        send(&platform, method, "/api/v1/nodes", &[], "").await;
    }
    let exposition = platform.client().read_text("/metrics").await.expect("metrics");
    assert!(exposition.contains("method=\"other\"") && !exposition.contains("BREW"), "{exposition}");
}
