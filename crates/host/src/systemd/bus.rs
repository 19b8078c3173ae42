//! The system bus, and the calls to systemd on it.
//!
//! Guarantees: one connection, which is opened again after it breaks; every call has a timeout; a refusal by systemd and a lost bus are
//! different errors; systemd joins the bus a moment after it starts the bus, and leaves it for a moment when it re-executes itself: callers
//! wait for it.
//!
//! Absent: the private socket that only `systemctl` uses; and waiting for a bus that does not run yet, which is up to the order of units at
//! boot.

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
/// Longest wait for an answer: as long as `systemctl` waits for a reload.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// Longest wait for systemd to join the bus: many times as long as it takes on a machine that is busy booting.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Bus errors for a peer that is not connected, or no longer.
const BUS_UNAVAILABLE: [&str; 4] = [
    "org.freedesktop.DBus.Error.NoReply",
    "org.freedesktop.DBus.Error.Disconnected",
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
];
/// The interface name with which `GetAll` returns the properties of all interfaces.
const EVERY_INTERFACE: &str = "";

/// The methods of systemd's manager that this crate calls.
#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
pub(super) trait Manager {
    /// Returns the path of a loaded unit. Loads none, unlike `LoadUnit` and any call to a unit's own path.
    fn get_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    /// Returns the enablement state of a unit file.
    fn get_unit_file_state(&self, file: &str) -> zbus::Result<String>;
    /// Queues a start and returns the job's path.
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    /// Queues a stop and returns the job's path.
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    /// Resets a unit's failed state.
    fn reset_failed_unit(&self, name: &str) -> zbus::Result<()>;
    /// Returns true if the files have an `[Install]` section, and the changes that were made.
    fn enable_unit_files(&self, files: &[&str], runtime: bool, force: bool) -> zbus::Result<(bool, Vec<FileChange>)>;
    /// Returns the changes that were made.
    fn disable_unit_files(&self, files: &[&str], runtime: bool) -> zbus::Result<Vec<FileChange>>;
    /// Returns the changes that were made.
    fn unmask_unit_files(&self, files: &[&str], runtime: bool) -> zbus::Result<Vec<FileChange>>;
    /// Reloads the unit files.
    fn reload(&self) -> zbus::Result<()>;
    /// Subscribes to signals.
    fn subscribe(&self) -> zbus::Result<()>;
}

/// Kind, path and destination of a link that was made or removed.
pub(super) type FileChange = (String, String, String);

/// The system bus, connected on first use and after a disconnect.
#[derive(Debug, Default)]
pub(super) struct Bus {
    connection: Mutex<Option<Connection>>,
}

impl Bus {
    /// Returns the open connection, or opens a new one.
    async fn connection(&self) -> Result<Connection, HostError> {
        let mut known = self.connection.lock().await;
        if let Some(connection) = known.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connection =
            zbus::connection::Builder::system().method_timeout(ANSWER_TIMEOUT).build().await.map_err(bus_error)?;
        Ok(known.insert(connection).clone())
    }

    /// Returns systemd's manager.
    pub(super) async fn systemd(&self) -> Result<Systemd, HostError> {
        let connection = self.connection().await?;
        let manager = ManagerProxy::builder(&connection).cache_properties(CacheProperties::No).build().await;
        Ok(Systemd { manager: manager.map_err(bus_error)?, connection })
    }
}

/// systemd on one connection.
#[derive(Clone, Debug)]
pub(super) struct Systemd {
    pub(super) manager: ManagerProxy<'static>,
    pub(super) connection: Connection,
}

impl Systemd {
    /// Returns systemd's unique name on the bus. Only signals from this sender count: any peer may send any signal.
    pub(super) async fn owner(&self) -> Result<OwnedUniqueName, HostError> {
        let bus = fdo::DBusProxy::new(&self.connection).await.map_err(bus_error)?;
        let name: BusName<'_> = SYSTEMD.try_into().map_err(bus_error)?;
        match bus.get_name_owner(name.clone()).await {
            Err(fdo::Error::NameHasNoOwner(_)) => {}
            known => return known.map_err(|error| bus_error(error.into())),
        }
        let mut changes = bus.receive_name_owner_changed_with_args(&[(0, SYSTEMD)]).await.map_err(bus_error)?;
        // systemd may have joined before the subscription to name changes.
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
        joined.ok_or_else(|| HostError::InitUnreachable("systemd is not on the system bus".to_owned()))
    }

    /// Reads every property of a loaded unit, of all its interfaces in one answer, so that all are of the same moment.
    pub(super) async fn properties(&self, path: &OwnedObjectPath) -> zbus::Result<Message> {
        let interface = Some("org.freedesktop.DBus.Properties");
        self.connection.call_method(Some(SYSTEMD), path.as_str(), interface, "GetAll", &EVERY_INTERFACE).await
    }
}

/// Returns true if systemd answered with this error.
pub(super) fn is_systemd_error(error: &zbus::Error, name: &str) -> bool {
    matches!(error, zbus::Error::MethodError(error_name, ..) if error_name.as_str().strip_prefix(SYSTEMD) == Some(name))
}

/// Returns true if the error means that the unit file does not exist.
pub(super) fn is_missing_file(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::FDO(error) if matches!(**error, fdo::Error::FileNotFound(_)))
}

/// Converts the failure of a call that concerns no unit.
pub(super) fn bus_error(error: zbus::Error) -> HostError {
    match host_error("", error) {
        HostError::Unit { message, .. } => HostError::Init(message),
        other => other,
    }
}

/// Converts the failure of a call about a unit.
pub(super) fn unit_error(unit: &str) -> impl FnOnce(zbus::Error) -> HostError {
    move |error| host_error(unit, error)
}

fn host_error(unit: &str, error: zbus::Error) -> HostError {
    let refused = |message: String| HostError::Unit { unit: unit.to_owned(), message };
    match error {
        // The bus daemon itself sends these errors for a peer that left.
        zbus::Error::MethodError(name, message, _) if BUS_UNAVAILABLE.contains(&name.as_str()) => {
            HostError::InitUnreachable(message.unwrap_or_else(|| name.to_string()))
        }
        zbus::Error::MethodError(name, message, _) => refused(message.unwrap_or_else(|| name.to_string())),
        zbus::Error::FDO(error) => match *error {
            fdo::Error::ZBus(error) => host_error(unit, error),
            gone @ (fdo::Error::NoReply(_)
            | fdo::Error::Disconnected(_)
            | fdo::Error::ServiceUnknown(_)
            | fdo::Error::NameHasNoOwner(_)) => HostError::InitUnreachable(gone.to_string()),
            other => refused(other.to_string()),
        },
        gone @ (zbus::Error::InputOutput(_) | zbus::Error::Connection(..) | zbus::Error::Handshake(_)) => {
            HostError::InitUnreachable(format!("the system bus: {gone}"))
        }
        other => HostError::Init(other.to_string()),
    }
}
