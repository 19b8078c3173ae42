//! A forward proxy as in networks behind a firewall: it supports only CONNECT.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::Context;

/// Longest request.
const REQUEST_BYTES_MAX: u64 = 8 * 1_024;

/// A proxy that listens until the process ends.
pub(super) struct Proxy {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Listens on a free port of the address.
    pub(super) fn listen(address: Ipv4Addr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((address, 0)).context("listening as a proxy")?;
        let (port, requests) = (listener.local_addr()?.port(), Arc::<Mutex<Vec<String>>>::default());
        let log = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let log = log.clone();
                // A detached thread: connections that are still open do not delay anything.
                thread::spawn(move || serve(stream, &log));
            }
        });
        Ok(Self { port, requests })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// First lines of the requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(client: TcpStream, log: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?.take(REQUEST_BYTES_MAX));
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    log.lock().unwrap_or_else(PoisonError::into_inner).push(request.trim().to_owned());
    let mut words = request.split(' ');
    let (Some("CONNECT"), Some(target)) = (words.next(), words.next()) else {
        return (&client).write_all(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n");
    };
    let Ok(server) = TcpStream::connect(target) else {
        return (&client).write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n");
    };
    (&client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (from_server, to_client) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || forward(from_server, to_client));
    // The client sends nothing before the response, so the reader holds no further bytes of it.
    forward(client, server)?;
    back.join().unwrap_or(Ok(()))
}

fn forward(mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    io::copy(&mut from, &mut to)?;
    to.shutdown(Shutdown::Write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_connects_to_the_requested_target_and_refuses_other_methods() {
        let proxy = Proxy::listen(Ipv4Addr::LOCALHOST).expect("a port");
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = target.local_addr().expect("an address").port();
        thread::spawn(move || {
            let (stream, _) = target.accept().expect("a connection");
            io::copy(&mut &stream, &mut &stream).expect("an echo");
        });
        let send = |text: String| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("the proxy listens");
            stream.write_all(text.as_bytes()).expect("sent");
            stream
        };
        let mut tunnel = send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let mut answer = [0; 39];
        tunnel.read_exact(&mut answer).expect("an answer");
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        tunnel.write_all(b"hello").and_then(|()| tunnel.shutdown(Shutdown::Write)).expect("sent");
        let mut echo = String::new();
        tunnel.read_to_string(&mut echo).expect("the echo is received");
        assert_eq!(echo, "hello");
        let mut refused = String::new();
        send("GET / HTTP/1.1\r\n\r\n".to_owned()).read_to_string(&mut refused).expect("an answer");
        assert!(refused.starts_with("HTTP/1.1 405"), "{refused}");
        assert_eq!(proxy.requests()[0], format!("CONNECT 127.0.0.1:{port} HTTP/1.1"));
    }
}
