//! The service that keeps the node's clock synchronized.

use std::{sync::Arc, time::Duration};

use gpuaas_host::{Command, Host, survey::Tree};
use gpuaas_wire::task::ClockKeeping;

/// Units of time services, by the names that distributions give them.
const KEEPERS: [&str; 6] =
    ["chrony.service", "chronyd.service", "systemd-timesyncd.service", "ntpsec.service", "ntpd.service", "ntp.service"];
/// Program that reports whether the kernel's clock is synchronized; the alternative is a system call.
const TIMEDATECTL: &str = "/usr/bin/timedatectl";
const TIMEDATECTL_TIMEOUT: Duration = Duration::from_secs(5);
/// File that systemd-timesyncd creates as soon as it has synchronized.
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";
/// File by which systemd marks a container, whose clock is that of the machine around it.
const CONTAINER: &str = "/run/systemd/container";

/// Determines how the clock is kept.
pub(crate) async fn keeping(host: &Arc<dyn Host>, tree: &Tree) -> ClockKeeping {
    if tree.is_sandbox() || tree.own_exists(CONTAINER) {
        return ClockKeeping::ByMachine;
    }
    let mut by = None;
    for unit in KEEPERS {
        if matches!(host.unit(unit).await, Ok(Some(status)) if status.is_running()) {
            by = Some(unit.trim_end_matches(".service").to_owned());
            break;
        }
    }
    judged(by, kernel_says(host, tree).await)
}

fn judged(by: Option<String>, synchronized: Option<bool>) -> ClockKeeping {
    match (synchronized, by) {
        (Some(true), by) => ClockKeeping::Synchronized { by },
        (Some(false), Some(by)) => ClockKeeping::NotYet { by },
        (Some(false), None) => ClockKeeping::ByNobody,
        (None, _) => ClockKeeping::Unknown,
    }
}

/// Returns whether the kernel considers its clock synchronized; `None` if it cannot be determined.
async fn kernel_says(host: &Arc<dyn Host>, tree: &Tree) -> Option<bool> {
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
    fn a_clock_is_kept_by_somebody_not_yet_by_nobody_or_nobody_can_tell() {
        let chrony = || Some("chrony".to_owned());
        assert_eq!(judged(chrony(), Some(true)), ClockKeeping::Synchronized { by: chrony() });
        assert_eq!(judged(None, Some(true)), ClockKeeping::Synchronized { by: None });
        assert_eq!(judged(chrony(), Some(false)), ClockKeeping::NotYet { by: "chrony".into() });
        assert_eq!(judged(None, Some(false)), ClockKeeping::ByNobody);
        assert_eq!((judged(chrony(), None), judged(None, None)), (ClockKeeping::Unknown, ClockKeeping::Unknown));
    }
}
