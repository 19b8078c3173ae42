//! Notifies the service manager that the unit is up: one datagram `READY=1`, from the main process only.
//!
//! Supports abstract sockets (leading `@`) and socket paths longer than the 107 bytes that an address can hold; the crate `sd-notify` supports
//! neither.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use camino::Utf8Path;
use rustix::fs::{Mode, OFlags};

/// `sun_path` holds 108 bytes, one of them the terminating zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Sends `READY=1`; does nothing if `NOTIFY_SOCKET` is unset or empty.
pub(crate) fn ready() -> io::Result<()> {
    match std::env::var("NOTIFY_SOCKET") {
        Ok(socket) if !socket.is_empty() => send(&socket, b"READY=1"),
        _ => Ok(()),
    }
}

fn send(socket: &str, message: &[u8]) -> io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
    if let Some(name) = socket.strip_prefix('@') {
        datagram.send_to_addr(message, &SocketAddr::from_abstract_name(name)?)?;
        return Ok(());
    }
    if socket.len() <= SOCKET_PATH_BYTES_MAX {
        datagram.send_to(message, socket)?;
        return Ok(());
    }
    let path = Utf8Path::new(socket);
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "NOTIFY_SOCKET is not the path of a socket"));
    };
    let dir = rustix::fs::open(dir.as_std_path(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    datagram.send_to(message, format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_with_a_long_path_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        // Bound through a short symbolic link, because the long path does not fit into an address.
        let short = dir.path().join("s");
        std::os::unix::fs::symlink(&deep, &short).unwrap();
        let listener = UnixDatagram::bind(short.join("n")).unwrap();
        send(deep.join("n").to_str().unwrap(), b"READY=1").unwrap();
        let mut buffer = [0; 16];
        let length = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
    }
}
