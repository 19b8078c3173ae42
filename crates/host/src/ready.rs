//! Says to the init that we are up and how we are, as systemd's notification protocol has it (`sd_notify(3)`).

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

/// Tells the init that this process, the main one of its unit, is up. Does nothing where no init asked to be told.
pub fn notify_ready() -> std::io::Result<()> {
    tell("READY=1")
}

/// Tells the init in a line how this process is; `systemctl status` shows it. Does nothing where no init asked to be told.
pub fn notify_status(status: &str) -> std::io::Result<()> {
    tell(&status_message(status))
}

/// One line, for the next would be another message, and short.
fn status_message(status: &str) -> String {
    const STATUS_BYTES_MAX: usize = 256;
    let line = status.lines().next().unwrap_or_default();
    format!("STATUS={}", &line[..line.floor_char_boundary(STATUS_BYTES_MAX)])
}

fn tell(message: &str) -> std::io::Result<()> {
    match std::env::var("NOTIFY_SOCKET") {
        Ok(socket) if !socket.is_empty() => send(&socket, message),
        _ => Ok(()),
    }
}

/// The socket is a path, or with `@` an abstract name, which a sandbox's is.
fn send(socket: &str, message: &str) -> std::io::Result<()> {
    /// An init that hangs must not hang us.
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
    fn an_init_is_told_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("gpuaas-ready-{}", std::process::id());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let at_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (told, socket) in [(at_path, path.to_str().unwrap().to_owned()), (at_name, format!("@{name}"))] {
            send(&socket, "READY=1").unwrap();
            let mut message = [0; 16];
            let length = told.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"READY=1");
        }
    }

    #[test]
    fn a_status_is_one_short_line() {
        assert_eq!(status_message("connected\nREADY=1"), "STATUS=connected");
        assert_eq!(status_message(&"ü".repeat(1_000)).len(), "STATUS=".len() + 256);
    }
}
