//! Reports readiness and status to the init with systemd's notification protocol (`sd_notify(3)`). The crate `sd-notify` knows no abstract
//! socket names, which sandboxes use, and no time limit.

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

use gpuaas_model::cut;

/// Reports to the init that this process, the main one of its unit, is ready. Does nothing if `NOTIFY_SOCKET` is not set.
pub fn notify_ready() -> std::io::Result<()> {
    notify("READY=1")
}

/// Reports this process's status to the init in one line; `systemctl status` shows it. Does nothing if `NOTIFY_SOCKET` is not set.
pub fn notify_status(status: &str) -> std::io::Result<()> {
    notify(&status_message(status))
}

/// Builds a message of one short line: a second line would be another message.
fn status_message(status: &str) -> String {
    const STATUS_BYTES_MAX: usize = 256;
    let line = status.lines().next().unwrap_or_default();
    format!("STATUS={}", cut(line, STATUS_BYTES_MAX))
}

fn notify(message: &str) -> std::io::Result<()> {
    match std::env::var("NOTIFY_SOCKET") {
        Ok(socket) if !socket.is_empty() => send(&socket, message),
        _ => Ok(()),
    }
}

/// Sends to a socket with a path or, after `@`, an abstract name; sandboxes use abstract names.
fn send(socket: &str, message: &str) -> std::io::Result<()> {
    /// Keeps a hung init from blocking this process.
    const TIMEOUT: Duration = Duration::from_secs(1);
    let datagram = UnixDatagram::unbound()?;
    datagram.set_write_timeout(Some(TIMEOUT))?;
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    datagram.send_to_addr(message.as_bytes(), &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_reaches_a_path_and_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("gpuaas-ready-{}", std::process::id());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let at_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (receiver, socket) in [(at_path, path.to_str().unwrap().to_owned()), (at_name, format!("@{name}"))] {
            send(&socket, "READY=1").unwrap();
            let mut message = [0; 16];
            let length = receiver.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"READY=1");
        }
    }

    #[test]
    fn a_status_is_one_short_line() {
        assert_eq!(status_message("connected\nREADY=1"), "STATUS=connected");
        let long = status_message(&"ü".repeat(1_000));
        assert!(long.len() <= "STATUS=".len() + 256 && long.ends_with(gpuaas_model::CUT_MARK), "{long}");
    }
}
