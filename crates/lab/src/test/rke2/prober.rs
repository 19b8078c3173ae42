//! Sends requests continuously in the background and counts failures.

use std::{
    collections::BTreeMap,
    fmt,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

/// Timeout of a connection and of each read.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest response that is read.
const ANSWER_BYTES_MAX: u64 = 4_096;
/// Responses that a prober must have received for a meaningful result.
const ANSWERS_MIN: u32 = 50;

/// Returns the body of a web server's response with status 200, by a minimal HTTP request.
pub(super) fn fetch(address: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX).context("connecting")?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(format!("GET / HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).context("sending the request")?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).context("reading the response")?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("incomplete response: {answer:?}"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    ensure!(status == "200", "the response has status {status}");
    Ok(body.trim().to_owned())
}

/// A prober that runs until `end`.
pub(super) struct Prober {
    stop: Sender<()>,
    thread: JoinHandle<ProbeResults>,
}

/// The results.
#[derive(Debug, Default)]
pub(super) struct ProbeResults {
    /// Number of times each response was received.
    pub(super) answers: BTreeMap<String, u32>,
    /// Failures, each with the time since the start.
    pub(super) failures: Vec<String>,
    /// Duration of the longest request.
    pub(super) longest: Duration,
    /// Longest time without a response: between two, before the first, or after the last.
    pub(super) longest_gap: Duration,
}

impl ProbeResults {
    /// Number of responses.
    pub(super) fn answered(&self) -> u32 {
        self.answers.values().sum()
    }

    /// Checks that no request failed, and that there were enough of them.
    pub(super) fn check_uninterrupted(&self) -> anyhow::Result<()> {
        ensure!(self.failures.is_empty(), "failed requests: {}", self.failures.join("; "));
        let answered = self.answered();
        ensure!(answered >= ANSWERS_MIN, "only {answered} requests were answered");
        Ok(())
    }
}

impl fmt::Display for ProbeResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (longest, gap) = (self.longest.as_millis(), self.longest_gap.as_millis());
        let (answered, failed) = (self.answered(), self.failures.len());
        write!(f, "{answered} answers, {failed} failures; the longest took {longest} ms, the longest gap was {gap} ms")
    }
}

impl Prober {
    /// Sends requests to these addresses in turn, each on a new connection.
    pub(super) fn begin(addresses: Vec<SocketAddr>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (began, mut results) = (Instant::now(), ProbeResults::default());
            let mut last_answer = began;
            for address in addresses.iter().cycle() {
                let sent_at = Instant::now();
                match fetch(*address) {
                    Ok(answer) => {
                        *results.answers.entry(answer).or_default() += 1;
                        results.longest_gap = results.longest_gap.max(last_answer.elapsed());
                        last_answer = Instant::now();
                    }
                    Err(error) => {
                        let after = began.elapsed().as_secs_f64();
                        results.failures.push(format!("{address} after {after:.2} s: {error:#}"));
                    }
                }
                results.longest = results.longest.max(sent_at.elapsed());
                if stopped.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            results.longest_gap = results.longest_gap.max(last_answer.elapsed());
            results
        });
        Self { stop, thread }
    }

    /// Stops the prober and returns the results.
    pub(super) fn end(self) -> anyhow::Result<ProbeResults> {
        drop(self.stop);
        self.thread.join().ok().context("the prober panicked")
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A web server that gives these answers, one per connection, and ends.
    fn server(answers: &'static [&'static str]) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let served = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a client connects");
                let mut request = [0; 512];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        (address, served)
    }

    #[test]
    fn only_complete_successful_responses_count() {
        let (address, _) =
            server(&["HTTP/1.0 200 OK\r\n\r\nnode-1\n", "HTTP/1.0 503 No\r\n\r\nnode-1", "HTTP/1.0 200 OK\r\n"]);
        assert_eq!(fetch(address).expect("a complete response"), "node-1");
        assert!(fetch(address).expect_err("status 503").to_string().contains("503"));
        assert!(fetch(address).expect_err("no body").to_string().contains("incomplete"));
    }

    #[test]
    fn failures_are_counted_and_described() {
        let (address, served) =
            server(&["HTTP/1.0 200 OK\r\n\r\na", "HTTP/1.0 500 No\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nb"]);
        let prober = Prober::begin(vec![address]);
        // A request in progress completes before the end.
        served.join().expect("all requests were answered");
        let results = prober.end().expect("the prober ended");
        assert_eq!(results.answers.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(results.failures[0].contains("500"), "{results:?}");
        assert!(results.check_uninterrupted().expect_err("a failure").to_string().contains("500"));
        assert!(results.longest_gap >= PAUSE, "between two answers is a pause: {results:?}");
        assert!(results.to_string().starts_with("2 answers, "), "{results}");
    }

    #[test]
    fn silence_is_a_gap_and_too_few_answers_prove_nothing() {
        let few = ProbeResults { answers: [("a".to_owned(), ANSWERS_MIN - 1)].into(), ..ProbeResults::default() };
        assert!(few.check_uninterrupted().is_err());
        let enough = ProbeResults { answers: [("a".to_owned(), ANSWERS_MIN)].into(), ..ProbeResults::default() };
        enough.check_uninterrupted().expect("enough answers");
        let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        let prober = Prober::begin(vec![nobody]);
        let results = prober.end().expect("the prober ended");
        assert!(results.answered() == 0 && results.longest_gap > Duration::ZERO, "{results:?}");
    }
}
