//! Injected faults: each line of a file on the node names one switch.
//!
//! Texts, levels and intervals follow public failure reports, so that the journal contains the lines that RKE2 prints, among the lines of
//! ordinary starts. The file is read at every start: a switch ends when its name is removed and the unit starts again. An unknown name, and
//! one that the node's role cannot have, is fatal: a misspelt switch would otherwise look like a healthy node.

mod exits;
mod line;
mod ordinary;
mod runs;
mod switch;
mod table;
mod waits;

use std::time::Duration;

use camino::Utf8PathBuf;

pub(crate) use switch::Stage;

use crate::api_client::join_host_port;
use crate::kubenode::Readiness;
use crate::log;
use crate::paths;
use crate::settings::{SUPERVISOR_PORT, Settings};
use crate::token::{self, Token};
use line::Line;
use switch::{Facts, Script, Switch};
use table::{SWITCHES, WITHOUT_SWITCH};

/// The file with the names, one per line; `#` starts a comment.
pub(crate) const FILE: &str = "/etc/rancher/rke2/stand-in-faults";

/// Interval between repetitions of a fault's lines; RKE2 logs most of them every five seconds.
const REPEAT_EVERY: Duration = Duration::from_secs(5);
/// A fault of [`Stage::Later`] begins this long after readiness was reported.
const LATER: Duration = Duration::from_secs(3);
/// Failing attempts of [`Stage::Unstable`], which are two seconds apart.
const UNSTABLE_ATTEMPTS: u32 = 3;

/// The faults switched on at this start.
pub(crate) struct Faults {
    switches: Vec<&'static Switch>,
    facts: Facts,
    kubelet_log: Utf8PathBuf,
}

impl Faults {
    /// Reads the file; a missing file means no faults.
    pub(crate) fn read(settings: &Settings) -> anyhow::Result<Self> {
        let text = paths::read_optional(&settings.paths.at(FILE))?.unwrap_or_default();
        let switches = parse(&text)?;
        for switch in &switches {
            anyhow::ensure!(
                switch.roles.include(settings.role),
                "stand-in fault {:?} is for nodes of role {}, not {}",
                switch.name,
                switch.roles.text(),
                settings.role.name()
            );
        }
        let kubelet_log = settings.paths.data("agent/logs/kubelet.log");
        Ok(Self { switches, facts: facts(settings), kubelet_log })
    }

    fn at(&self, stage: Stage) -> impl Iterator<Item = Script> {
        self.switches.iter().filter(move |switch| switch.stage == stage).map(move |switch| (switch.script)(&self.facts))
    }

    /// Whether a fault of this stage is switched on.
    pub(crate) fn strike_at(&self, stage: Stage) -> bool {
        self.at(stage).next().is_some()
    }

    /// Logs the lines of a fault that ends the program at its start, and returns its fatal text as the error.
    pub(crate) fn exit_at_start(&self) -> anyhow::Result<()> {
        for script in self.at(Stage::Start) {
            if let Script::Exits { before, fatal } = script {
                self.write(&ordinary::first(&self.facts));
                self.write(&before);
                anyhow::bail!(fatal);
            }
        }
        Ok(())
    }

    /// The reason why an attempt at this stage fails, if a fault makes it fail.
    pub(crate) fn refusal(&self, stage: Stage) -> Option<String> {
        self.at(stage).find_map(|script| match script {
            Script::Refuses(reason) => Some(reason),
            Script::Exits { .. } | Script::Repeats(_) | Script::Silent => None,
        })
    }

    /// As [`Self::refusal`] for the faults that end by themselves; `attempt` counts from 0.
    pub(crate) fn unstable_refusal(&self, attempt: u32) -> Option<String> {
        self.refusal(Stage::Unstable).filter(|_| attempt < UNSTABLE_ATTEMPTS)
    }

    /// Never returns if a fault of this stage is switched on: logs its lines, among ordinary ones, until the program ends.
    pub(crate) async fn hold_at(&self, stage: Stage) {
        if !self.strike_at(stage) {
            return;
        }
        self.write(&ordinary::first(&self.facts));
        loop {
            self.write_round(stage);
            self.write(&ordinary::waiting(&self.facts));
            tokio::time::sleep(REPEAT_EVERY).await;
        }
    }

    /// Starts to log the lines of the faults of a node that has joined. They last until the program ends.
    pub(crate) fn follow_readiness(self: &std::sync::Arc<Self>) {
        for (stage, delay) in [(Stage::Network, Duration::ZERO), (Stage::Later, LATER)] {
            if !self.strike_at(stage) {
                continue;
            }
            let faults = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                loop {
                    faults.write_round(stage);
                    tokio::time::sleep(REPEAT_EVERY).await;
                }
            });
        }
    }

    /// What the KubeNode of a joined node reports.
    pub(crate) fn readiness(&self) -> Readiness {
        if self.strike_at(Stage::Network) {
            Readiness::NoCni
        } else if self.switches.iter().any(|switch| switch.name == IMAGES_COLLECTED) {
            Readiness::DiskPressure
        } else {
            Readiness::Ready
        }
    }

    fn write_round(&self, stage: Stage) {
        for script in self.at(stage) {
            match script {
                Script::Repeats(lines) => self.write(&lines),
                Script::Refuses(reason) => {
                    log::info!("Waiting to retrieve agent configuration; server is not ready: {reason}");
                }
                Script::Exits { .. } | Script::Silent => {}
            }
        }
    }

    fn write(&self, lines: &[Line]) {
        for line in lines {
            line.write(&self.kubelet_log);
        }
    }
}

/// The switch with which a KubeNode also reports that its disk is full.
const IMAGES_COLLECTED: &str = "images-collected";

/// Formats every switch as a Markdown table, which `docs/stand-in.md` contains.
pub(crate) fn table() -> String {
    let mut rows: Vec<String> = SWITCHES
        .iter()
        .map(|switch| {
            let row = switch.row.map_or_else(|| "–".to_owned(), |row| row.to_string());
            let (roles, unit, cure) = (switch.roles.text(), switch.stage.unit(), switch.cure.text());
            format!("| `{}` | {row} | {roles} | {} | {unit} | {cure} |", switch.name, switch.about)
        })
        .collect();
    let head = ["| name | row | role | failure | the unit | cured by |", "| --- | --- | --- | --- | --- | --- |"];
    rows.splice(0..0, head.map(str::to_owned));
    rows.extend(["".to_owned(), "Rows without a switch:".to_owned(), "".to_owned()]);
    rows.extend(WITHOUT_SWITCH.map(|(row, reason)| format!("- {row}: {reason}.")));
    rows.join("\n") + "\n"
}

fn parse(text: &str) -> anyhow::Result<Vec<&'static Switch>> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let named = lines.filter(|name| !name.is_empty()).map(|name| {
        let found = SWITCHES.iter().find(|switch| switch.name == name);
        found.ok_or_else(|| anyhow::anyhow!("unknown stand-in fault {name:?}: `rke2 stand-in-faults` lists all"))
    });
    named.collect()
}

fn facts(settings: &Settings) -> Facts {
    let own = join_host_port(&settings.address.to_string(), SUPERVISOR_PORT);
    let joined = settings.server_url.as_deref().and_then(|url| url.strip_prefix("https://")).map(str::to_owned);
    let token = settings.token.as_deref().and_then(|text| Token::parse(text, "node").ok());
    Facts {
        role: settings.role,
        node_name: settings.node_name.clone(),
        address: settings.address.to_string(),
        server: joined.unwrap_or(own),
        data_dir: settings.options.value("data-dir").unwrap_or(paths::DEFAULT_DATA_DIR).into(),
        ca_hash: token.and_then(|token| token.ca_hash).unwrap_or_else(|| token::ca_hash("")),
    }
}

#[cfg(test)]
mod diagnosis;
#[cfg(test)]
mod tests;
