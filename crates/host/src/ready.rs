//! Says READY=1 to the init, as systemd's notification protocol has it.

use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixDatagram},
};

/// Tells the init that this process, the main one of its unit, is up. Does nothing where no init asked to be told.
pub fn notify_ready() -> std::io::Result<()> {
    match std::env::var("NOTIFY_SOCKET") {
        Ok(socket) if !socket.is_empty() => send(&socket),
        _ => Ok(()),
    }
}

/// The socket is a path, or with `@` an abstract name, which a sandbox's is.
fn send(socket: &str) -> std::io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    datagram.send_to_addr(b"READY=1", &address).map(|_| ())
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
            send(&socket).unwrap();
            let mut message = [0; 16];
            let length = told.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"READY=1");
        }
    }
}
