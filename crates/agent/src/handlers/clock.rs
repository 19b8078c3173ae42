//! Whether the node's clock is synchronized, and by which service.

use std::{sync::Arc, time::Duration};

use gpuaas_host::{Command, Host, survey::Tree};
use gpuaas_wire::task::ClockSync;

/// Units of time services, by the names that distributions give them.
const TIME_SERVICES: [&str; 6] =
    ["chrony.service", "chronyd.service", "systemd-timesyncd.service", "ntpsec.service", "ntpd.service", "ntp.service"];
/// Program that reports whether the kernel's clock is synchronized; the alternative is the system call `adjtimex`.
const TIMEDATECTL: &str = "/usr/bin/timedatectl";
const TIMEDATECTL_TIMEOUT: Duration = Duration::from_secs(5);
/// File that systemd-timesyncd creates as soon as it has synchronized.
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";
/// File by which systemd marks a container, whose clock is that of the machine around it.
const CONTAINER: &str = "/run/systemd/container";

/// Determines how the clock is kept.
pub(crate) async fn clock_sync(host: &Arc<dyn Host>, tree: &Tree) -> ClockSync {
    if tree.is_sandbox() || tree.own_exists(CONTAINER) {
        return ClockSync::ByMachine;
    }
    let mut by = None;
    for unit in TIME_SERVICES {
        if matches!(host.units().unit(unit).await, Ok(Some(status)) if status.is_running()) {
            by = Some(unit.trim_end_matches(".service").to_owned());
            break;
        }
    }
    sync_state(by, is_synchronized(host, tree).await)
}

fn sync_state(by: Option<String>, synchronized: Option<bool>) -> ClockSync {
    match (synchronized, by) {
        (Some(true), by) => ClockSync::Synchronized { by },
        (Some(false), Some(by)) => ClockSync::NotYet { by },
        (Some(false), None) => ClockSync::NoTimeService,
        (None, _) => ClockSync::Unknown,
    }
}

/// Returns whether the kernel considers its clock synchronized; `None` if it cannot be determined.
async fn is_synchronized(host: &Arc<dyn Host>, tree: &Tree) -> Option<bool> {
    if tree.own_exists(TIMEDATECTL) {
        let arguments = ["show", "--property=NTPSynchronized", "--value"].map(str::to_owned).into();
        let command =
            Command { program: TIMEDATECTL.into(), arguments, environment: Vec::new(), timeout: TIMEDATECTL_TIMEOUT };
        if let Ok(end) = host.run(&command).await {
            match end.output.lines().next().map(str::trim) {
                Some("yes") => return Some(true),
                Some("no") => return Some(false),
                _ => {}
            }
        }
    }
    tree.own_exists(SYNCHRONIZED).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_state_follows_service_and_kernel() {
        let chrony = || Some("chrony".to_owned());
        assert_eq!(sync_state(chrony(), Some(true)), ClockSync::Synchronized { by: chrony() });
        assert_eq!(sync_state(None, Some(true)), ClockSync::Synchronized { by: None });
        assert_eq!(sync_state(chrony(), Some(false)), ClockSync::NotYet { by: "chrony".into() });
        assert_eq!(sync_state(None, Some(false)), ClockSync::NoTimeService);
        assert_eq!((sync_state(chrony(), None), sync_state(None, None)), (ClockSync::Unknown, ClockSync::Unknown));
    }
}
