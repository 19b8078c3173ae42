//! The system bus, and what systemd is asked on it.
//!
//! Guarantees: one connection, made anew after it broke; every call ends in time; what systemd refuses is told from a bus that is gone;
//! systemd, which joins the bus a moment after it has started it and leaves it for a moment when it executes itself again, is waited for.
//!
//! Absent: the socket that only `systemctl` speaks on, which is private to it; and waiting for a bus that is not there yet, which is the
//! order of units at boot.

use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::Mutex;
use zbus::{
    Connection, Message, OwnedObjectPath, fdo,
    names::{BusName, OwnedUniqueName},
    proxy::CacheProperties,
};

use crate::error::HostError;

/// systemd's name on the bus.
pub(super) const SYSTEMD: &str = "org.freedesktop.systemd1";
/// Longest wait for an answer: what `systemctl` waits for a reload.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// Longest wait for systemd to join the bus: many times what it takes on a machine that is busy booting.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// What is answered for who is not there, or no more.
const BUS_GONE: [&str; 4] = [
    "org.freedesktop.DBus.Error.NoReply",
    "org.freedesktop.DBus.Error.Disconnected",
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
];
/// What GetAll calls every interface at once by.
const EVERY_INTERFACE: &str = "";

/// What systemd's manager is asked, as far as it is asked here.
#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
pub(super) trait Manager {
    /// The path of a unit that is loaded. Loads none, unlike LoadUnit and any question to a unit's own path.
    fn get_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    /// Whether a unit starts at boot, by its file.
    fn get_unit_file_state(&self, file: &str) -> zbus::Result<String>;
    /// Orders a start and answers with the job.
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    /// Orders a stop and answers with the job.
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    /// Forgets a failure.
    fn reset_failed_unit(&self, name: &str) -> zbus::Result<()>;
    /// Whether the files say when they are wanted, and what was changed for it.
    fn enable_unit_files(&self, files: &[&str], runtime: bool, force: bool) -> zbus::Result<(bool, Vec<FileChange>)>;
    /// What was changed.
    fn disable_unit_files(&self, files: &[&str], runtime: bool) -> zbus::Result<Vec<FileChange>>;
    /// Reads unit files anew.
    fn reload(&self) -> zbus::Result<()>;
    /// Asks for signals.
    fn subscribe(&self) -> zbus::Result<()>;
}

/// Kind, path and destination of a link that was made or removed.
pub(super) type FileChange = (String, String, String);

/// The bus, as long as it is there.
#[derive(Debug, Default)]
pub(super) struct Bus {
    connection: Mutex<Option<Connection>>,
}

impl Bus {
    /// The connection, a new one where there is none.
    async fn connection(&self) -> Result<Connection, HostError> {
        let mut known = self.connection.lock().await;
        if let Some(connection) = known.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connection =
            zbus::connection::Builder::system().method_timeout(ANSWER_TIMEOUT).build().await.map_err(gone)?;
        Ok(known.insert(connection).clone())
    }

    /// systemd's manager.
    pub(super) async fn systemd(&self) -> Result<Systemd, HostError> {
        let connection = self.connection().await?;
        let manager = ManagerProxy::builder(&connection).cache_properties(CacheProperties::No).build().await;
        Ok(Systemd { manager: manager.map_err(gone)?, connection })
    }
}

/// systemd on one connection.
#[derive(Clone, Debug)]
pub(super) struct Systemd {
    pub(super) manager: ManagerProxy<'static>,
    pub(super) connection: Connection,
}

impl Systemd {
    /// Who systemd is on the bus: only its signals are believed. Anybody may send one to anybody.
    pub(super) async fn owner(&self) -> Result<OwnedUniqueName, HostError> {
        let bus = fdo::DBusProxy::new(&self.connection).await.map_err(gone)?;
        let name: BusName<'_> = SYSTEMD.try_into().map_err(gone)?;
        match bus.get_name_owner(name.clone()).await {
            Err(fdo::Error::NameHasNoOwner(_)) => {}
            known => return known.map_err(|error| gone(error.into())),
        }
        let mut changes = bus.receive_name_owner_changed_with_args(&[(0, SYSTEMD)]).await.map_err(gone)?;
        // It may have joined before its joining was listened to.
        if let Ok(owner) = bus.get_name_owner(name).await {
            return Ok(owner);
        }
        let joining = async {
            while let Some(change) = changes.next().await {
                if let Some(owner) = change.args().ok().and_then(|change| change.new_owner().as_ref().cloned()) {
                    return Some(OwnedUniqueName::from(owner));
                }
            }
            None
        };
        let joined = tokio::time::timeout(JOIN_TIMEOUT, joining).await.ok().flatten();
        joined.ok_or_else(|| HostError::InitGone("systemd is not on the system bus".to_owned()))
    }

    /// Every property of a loaded unit, of all its interfaces in one answer: they are of the same moment.
    pub(super) async fn properties(&self, path: &OwnedObjectPath) -> zbus::Result<Message> {
        let interface = Some("org.freedesktop.DBus.Properties");
        self.connection.call_method(Some(SYSTEMD), path.as_str(), interface, "GetAll", &EVERY_INTERFACE).await
    }
}

/// Whether systemd answered with that error.
pub(super) fn is(error: &zbus::Error, name: &str) -> bool {
    matches!(error, zbus::Error::MethodError(told, ..) if told.as_str().strip_prefix(SYSTEMD) == Some(name))
}

/// Whether there is no such file.
pub(super) fn is_no_file(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::FDO(error) if matches!(**error, fdo::Error::FileNotFound(_)))
}

/// A failure that concerns no unit.
pub(super) fn gone(error: zbus::Error) -> HostError {
    match about("", error) {
        HostError::Unit { message, .. } => HostError::Init(message),
        other => other,
    }
}

/// A failure of what was asked about a unit.
pub(super) fn failed(unit: &str) -> impl FnOnce(zbus::Error) -> HostError {
    move |error| about(unit, error)
}

fn about(unit: &str, error: zbus::Error) -> HostError {
    let refused = |message: String| HostError::Unit { unit: unit.to_owned(), message };
    match error {
        // The bus itself says these of somebody who left it.
        zbus::Error::MethodError(name, message, _) if BUS_GONE.contains(&name.as_str()) => {
            HostError::InitGone(message.unwrap_or_else(|| name.to_string()))
        }
        zbus::Error::MethodError(name, message, _) => refused(message.unwrap_or_else(|| name.to_string())),
        zbus::Error::FDO(error) => match *error {
            fdo::Error::ZBus(error) => about(unit, error),
            gone @ (fdo::Error::NoReply(_)
            | fdo::Error::Disconnected(_)
            | fdo::Error::ServiceUnknown(_)
            | fdo::Error::NameHasNoOwner(_)) => HostError::InitGone(gone.to_string()),
            other => refused(other.to_string()),
        },
        gone @ (zbus::Error::InputOutput(_) | zbus::Error::Connection(..) | zbus::Error::Handshake(_)) => {
            HostError::InitGone(format!("the system bus: {gone}"))
        }
        other => HostError::Init(other.to_string()),
    }
}
