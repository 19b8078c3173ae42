//! The lock that lets one lab command at a time make changes.
//!
//! Guarantees: the lock ends with its holder, however that one dies, and leaves no file behind: it is an abstract socket name, held by the
//! kernel.

use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener, UnixStream},
};

use anyhow::Context;

use super::{place::MARK, refusal::Refusal};

/// Held while a command changes the lab.
pub(super) struct LabLock {
    _socket: UnixListener,
}

impl LabLock {
    /// Takes the lock, or fails with the PID of its holder.
    pub(super) fn take() -> anyhow::Result<Self> {
        Self::named(MARK)
    }

    fn named(name: &str) -> anyhow::Result<Self> {
        let address = SocketAddr::from_abstract_name(name)?;
        match UnixListener::bind_addr(&address) {
            Ok(socket) => Ok(Self { _socket: socket }),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                // The holder may just have ended; no PID is known then.
                let holder = UnixStream::connect_addr(&address).ok().and_then(|stream| {
                    rustix::net::sockopt::socket_peercred(&stream).ok().map(|peer| peer.pid.as_raw_nonzero().get())
                });
                Err(Refusal::Locked(holder.unwrap_or_default()).into())
            }
            Err(error) => Err(error).context("taking the lab's lock"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_lock_fails_with_the_pid_of_the_holder() {
        let name = format!("gpuaas-lab-test-{}", std::process::id());
        let first = LabLock::named(&name).expect("the lock is free");
        let error = LabLock::named(&name).map(|_| ()).expect_err("the lock is held");
        let us = i32::try_from(std::process::id()).expect("a pid");
        assert!(matches!(error.downcast_ref(), Some(Refusal::Locked(pid)) if *pid == us), "{error}");
        drop(first);
        LabLock::named(&name).expect("the lock was released");
    }
}
