//! Tells the init how this process is, as systemd's notification protocol has it: that it is up, and in one line what it does.

use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixDatagram},
};

/// Longest line that is told, in bytes.
const STATUS_BYTES_MAX: usize = 512;

/// Tells the init that this process, the main one of its unit, is up. Does nothing where no init asked to be told.
pub fn notify_ready() -> std::io::Result<()> {
    notify("READY=1")
}

/// Tells the init in one line what this process does; `systemctl status` shows it. Does nothing where no init asked to be told.
pub fn notify_status(text: &str) -> std::io::Result<()> {
    notify(&status(text))
}

fn status(text: &str) -> String {
    let line: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    format!("STATUS={}", &line[..line.floor_char_boundary(STATUS_BYTES_MAX)])
}

fn notify(message: &str) -> std::io::Result<()> {
    match std::env::var("NOTIFY_SOCKET") {
        Ok(socket) if !socket.is_empty() => send(&socket, message),
        _ => Ok(()),
    }
}

/// The socket is a path, or with `@` an abstract name, which a sandbox's is.
fn send(socket: &str, message: &str) -> std::io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
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
    fn a_status_is_one_bounded_line() {
        assert_eq!(status("connected to cp:7444"), "STATUS=connected to cp:7444");
        assert_eq!(status("one\nREADY=1"), "STATUS=one READY=1");
        assert_eq!(status(&"ü".repeat(STATUS_BYTES_MAX)).len(), "STATUS=".len() + STATUS_BYTES_MAX);
    }
}
