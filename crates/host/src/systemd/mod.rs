//! The systemd backend: a machine that systemd booted, controlled over the system bus.
//!
//! Guarantees: a host without systemd is refused with an error that names it; units are followed by systemd's signals and journals by
//! `journalctl --follow`, without polling; errors of systemd keep its own message.
//!
//! Absent: user managers, and starting units that have no file.

mod bus;
mod export;
mod journal;
mod modules;
mod signals;
mod unit_state;
mod units;
mod watch;

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    sync::Arc,
};

use async_trait::async_trait;
use camino::{Utf8Path, Utf8PathBuf};
use futures::stream::BoxStream;

use crate::{
    changes,
    error::HostError,
    file::Changed,
    firewall,
    host::{Command, CommandEnd, Facts, Files, Host, Inventory, Units},
    inventory::{Listener, Process},
    journal::{JournalFrom, JournalLine},
    links, machine,
    mounts::mount_points,
    path::is_under,
    processes, program,
    root::Root,
    root_files::RootFiles,
    sockets,
    survey::Tree,
    unit::{UnitFileState, UnitStatus},
};
use bus::Bus;

/// Exists if systemd has booted the machine: the test of `sd_booted(3)`.
const BOOTED: &str = "/run/systemd/system";
/// Search path of programs, as systemd sets it for units.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// An address reserved for documentation (RFC 5737): the route to it is the default route. Nothing is sent.
const OUTSIDE_ADDRESS: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// Folders of unit files, masks and links of enabled units that change for units of apps.
const ENABLEMENT_FOLDERS: [&str; 4] = [
    "/etc/systemd/system",
    "/etc/systemd/system/multi-user.target.wants",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
];
/// Most addresses that are reported, as many as the node channel's hello accepts; the node's main address comes first. Software that gives
/// each service of a cluster an address of the host can create any number.
const ADDRESSES_MAX: usize = 128;

/// A machine with systemd.
#[derive(Clone, Debug)]
pub struct SystemdHost {
    files: RootFiles,
    units: SystemdUnits,
}

/// The units of systemd, over the system bus.
#[derive(Clone, Debug, Default)]
struct SystemdUnits(Arc<Bus>);

impl SystemdHost {
    /// Returns this machine; refuses one that systemd has not booted, or whose kernel is too old.
    pub fn of_this_machine() -> Result<Self, HostError> {
        check_booted(Utf8Path::new(BOOTED))?;
        let root = Root::new("/".into());
        root.check()?;
        Ok(Self { files: RootFiles::under(root), units: SystemdUnits::default() })
    }

    /// Checks that systemd answers on the bus.
    pub async fn check(&self) -> Result<(), HostError> {
        self.units.0.systemd().await?.owner().await.map(drop)
    }

    /// Returns every address of the machine that others can reach: neither loopback nor link-local addresses.
    fn addresses(&self) -> Vec<IpAddr> {
        let own = self.address();
        let links = if_addrs::get_if_addrs().unwrap_or_default();
        let others =
            links.iter().filter(|link| !link.is_loopback() && !link.is_link_local()).map(if_addrs::Interface::ip);
        let mut addresses = vec![own];
        addresses.extend(others.filter(|address| *address != own));
        addresses.truncate(ADDRESSES_MAX);
        addresses
    }
}

fn check_booted(marker: &Utf8Path) -> Result<(), HostError> {
    let is_booted = marker.symlink_metadata().is_ok_and(|known| known.is_dir());
    if is_booted { Ok(()) } else { Err(HostError::NotBooted(marker.to_owned())) }
}

#[async_trait]
impl Host for SystemdHost {
    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn units(&self) -> &dyn Units {
        &self.units
    }

    fn inventory(&self) -> &dyn Inventory {
        self
    }

    async fn run(&self, command: &Command) -> Result<CommandEnd, HostError> {
        let mut program = tokio::process::Command::new(self.files.root().program(&command.program)?.as_std_path());
        // The agent's own environment may contain its enrollment token.
        program.env_clear().env("PATH", PATH).env("HOME", "/root");
        program::run(program, command).await
    }

    async fn set_sysctl(&self, name: &str, value: &str) -> Result<Changed, HostError> {
        self.tree().set_sysctl(name, value)
    }

    async fn load_module(&self, name: &str) -> Result<Changed, HostError> {
        modules::load_module(self, name).await
    }
}

#[async_trait]
impl Units for SystemdUnits {
    async fn daemon_reload(&self) -> Result<(), HostError> {
        units::reload(&self.0.systemd().await?).await
    }

    async fn start(&self, unit: &str) -> Result<Changed, HostError> {
        units::start(&self.0.systemd().await?, unit).await
    }

    async fn stop(&self, unit: &str) -> Result<Changed, HostError> {
        units::stop(&self.0.systemd().await?, unit).await
    }

    async fn enable(&self, unit: &str) -> Result<Changed, HostError> {
        units::enable(&self.0.systemd().await?, unit).await
    }

    async fn disable(&self, unit: &str) -> Result<Changed, HostError> {
        units::disable(&self.0.systemd().await?, unit).await
    }

    async fn unmask(&self, unit: &str) -> Result<Changed, HostError> {
        units::unmask(&self.0.systemd().await?, unit).await
    }

    async fn unit_file_state(&self, unit: &str) -> Result<UnitFileState, HostError> {
        unit_state::file_state(&self.0.systemd().await?, unit).await
    }

    /// Returns the paths of the unit file, of its masks, and of the link with which it is enabled for the usual target.
    fn enablement_paths(&self, unit: &str) -> Vec<Utf8PathBuf> {
        ENABLEMENT_FOLDERS.iter().map(|folder| Utf8Path::new(folder).join(unit)).collect()
    }

    async fn reset_failed(&self, unit: &str) -> Result<Changed, HostError> {
        units::reset_failed(&self.0.systemd().await?, unit).await
    }

    async fn unit(&self, unit: &str) -> Result<Option<UnitStatus>, HostError> {
        Ok(unit_state::query(&self.0.systemd().await?, unit).await?.map(|known| known.status))
    }

    async fn unit_events(&self, unit: &str) -> Result<BoxStream<'static, UnitStatus>, HostError> {
        watch::watch(self.0.clone(), unit).await
    }

    async fn journal(
        &self,
        unit: &str,
        from: JournalFrom,
        follow: bool,
    ) -> Result<BoxStream<'static, JournalLine>, HostError> {
        journal::read(unit, &from, follow).await
    }
}

#[async_trait]
impl Inventory for SystemdHost {
    async fn facts(&self) -> Result<Facts, HostError> {
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        machine::facts(self.files.root(), machine::Identity { hostname, addresses: self.addresses(), sandbox: false })
    }

    /// Returns the source address of the default route; without a route, the first address that others can reach; otherwise 127.0.0.1.
    fn address(&self) -> IpAddr {
        let routed = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
            socket.connect(OUTSIDE_ADDRESS)?;
            Ok(socket.local_addr()?.ip())
        });
        let links = || if_addrs::get_if_addrs().unwrap_or_default().into_iter();
        let first = || links().find(|link| !link.is_loopback() && !link.is_link_local()).map(|link| link.ip());
        routed.ok().or_else(first).unwrap_or(Ipv4Addr::LOCALHOST.into())
    }

    async fn listening(&self, ports: &[u16]) -> Result<Vec<u16>, HostError> {
        sockets::listening(self.address(), ports)
    }

    async fn listeners(&self) -> Result<Vec<Listener>, HostError> {
        sockets::listeners(processes::processes(&[])?)
    }

    async fn processes(&self, prefixes: &[String]) -> Result<Vec<Process>, HostError> {
        processes::processes(prefixes)
    }

    async fn mounts(&self, prefixes: &[String]) -> Result<Vec<String>, HostError> {
        // The mounts that the init sees: the agent can run in a mount namespace of its own.
        let mut mounts = mount_points("1")?;
        mounts.retain(|mount| is_under(prefixes, mount));
        Ok(mounts)
    }

    async fn links(&self) -> Result<Vec<String>, HostError> {
        links::links()
    }

    async fn firewall_rules(&self, substrings: &[String]) -> Result<Option<Vec<String>>, HostError> {
        firewall::rules(substrings).await
    }

    async fn changes(&self, paths: &[Utf8PathBuf]) -> Result<BoxStream<'static, ()>, HostError> {
        changes::changes(self.files.root(), paths)
    }

    fn tree(&self) -> Tree {
        Tree::of_this_machine()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_without_systemd_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let sign = Utf8PathBuf::from_path_buf(folder.path().join("system")).unwrap();
        assert_eq!(
            check_booted(&sign).unwrap_err().to_string(),
            format!("this host was not booted with systemd: {sign} does not exist")
        );
        std::fs::create_dir(&sign).unwrap();
        check_booted(&sign).unwrap();
    }
}
