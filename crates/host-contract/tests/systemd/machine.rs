//! The machine as a backend; it is cleared before every case.

use std::{process::Command, sync::Arc};

use gpuaas_host::{Host, systemd::SystemdHost};
use gpuaas_host_contract::Backend;

/// Ends and removes everything that cases create. Only the cases' units are regular files there; all other entries are links of enabled
/// units.
const CLEAR: &str = r#"
cd /etc/systemd/system
for unit in $(find . -maxdepth 1 -type f -name '*.service' -printf '%f\n'); do
    systemctl kill --signal=KILL "$unit" 2>/dev/null
    systemctl stop "$unit" 2>/dev/null
    systemctl disable --quiet "$unit" 2>/dev/null
    rm -f "$unit"
done
systemctl daemon-reload
systemctl reset-failed
rm -rf /etc/contract /var/lib/contract /usr/local/lib/contract /usr/local/bin/* /tmp/marks /tmp/gate /tmp/pipe /tmp/once
journalctl --quiet --rotate && journalctl --quiet --vacuum-size=1 2>/dev/null
test -z "$(find /etc/systemd/system -maxdepth 1 -name '*.service' -type f)"
"#;

/// This machine.
pub(crate) struct Machine;

impl Machine {
    /// Returns the machine without anything that an earlier case created.
    pub(crate) fn cleared() -> Self {
        let cleared = Command::new("/bin/sh").args(["-c", CLEAR]).status().unwrap();
        assert!(cleared.success(), "the machine is not cleared: {cleared}");
        Self
    }
}

impl Backend for Machine {
    fn client(&self) -> Arc<dyn Host> {
        Arc::new(SystemdHost::of_this_machine().unwrap())
    }

    fn notifier(&self) -> String {
        "systemd-notify --ready".to_owned()
    }

    fn program(&self) -> String {
        let program = std::env::current_exe().unwrap().with_file_name("contract-node");
        assert!(program.exists(), "{} is missing", program.display());
        program.to_str().unwrap().to_owned()
    }

    fn is_machine(&self) -> bool {
        true
    }
}
