//! What differs on a node from what its workload expects: files, unit, program. Changes nothing.
//!
//! Guarantees: no text contains the content or the digest of a file; a planted link, pipe or huge file is a difference and no failure.

use camino::Utf8Path;
use gpuaas_app_rke2_tasks::{Deviation, DeviationKind, Rke2Configure, Rke2Expected, Rke2Observation, Rke2Role};
use gpuaas_handler::{Context, host_failed};
use gpuaas_host::{HostError, UnitFileState};
use gpuaas_trust::sha256_hex;
use gpuaas_wire::{bounds::one_line, task::TaskFailure};
use zeroize::Zeroizing;

use crate::{kubeconfig_read::KUBECONFIG, program::Program};

/// Largest configuration that is read, in bytes: a task's parameters are smaller.
const CONFIG_BYTES_MAX: u64 = 1_024 * 1_024;
/// Largest token file that is read, in bytes.
const TOKEN_BYTES_MAX: u64 = 4 * 1_024;
const TOKEN_MODE: u32 = 0o600;
/// Folder of further configuration files, which RKE2 reads after its own in the order of their names.
pub(crate) const CONFIG_FOLDER: &str = "/etc/rancher/rke2/config.yaml.d";
/// Most files of that folder that are named one by one.
const FOREIGN_NAMED_MAX: usize = 8;

/// The configuration file as it was found.
pub(crate) enum Config {
    Missing,
    Read {
        sha256: String,
    },
    /// It is no regular file of a configuration's size, for this reason.
    Unreadable(String),
}

impl Config {
    /// Reads the configuration file.
    pub(crate) async fn read(context: &Context) -> Result<Self, TaskFailure> {
        Ok(match read(context, Rke2Configure::CONFIG_PATH, CONFIG_BYTES_MAX).await? {
            Content::Missing => Self::Missing,
            Content::Bytes(bytes) => Self::Read { sha256: sha256_hex(&bytes) },
            Content::Unreadable(why) => Self::Unreadable(why),
        })
    }

    /// Returns the digest of a file that could be read.
    pub(crate) fn sha256(self) -> Option<String> {
        match self {
            Self::Read { sha256 } => Some(sha256),
            Self::Missing | Self::Unreadable(_) => None,
        }
    }
}

/// Compares the node with what is expected.
pub(crate) async fn deviations(
    role: Rke2Role,
    expected: &Rke2Expected,
    program: &Program,
    config: &Config,
    context: &Context,
) -> Result<Vec<Deviation>, TaskFailure> {
    let mut found = Found(Vec::new());
    found.config(&expected.config_sha256, config);
    found.token(Rke2Configure::TOKEN_PATH, &expected.token_sha256, context).await?;
    if let Some(sha256) = &expected.agent_token_sha256 {
        found.token(Rke2Configure::AGENT_TOKEN_PATH, sha256, context).await?;
    }
    found.unit(role.unit(), context.host.units().unit_file_state(role.unit()).await.map_err(host_failed)?);
    if let Program::Fails(why) = program {
        found.add(DeviationKind::ProgramMissing, why.clone());
    }
    if role == Rke2Role::Server {
        found.kubeconfig(context).await?;
    }
    found.foreign_config(context).await?;
    found.0.truncate(Rke2Observation::DEVIATIONS_MAX);
    Ok(found.0)
}

struct Found(Vec<Deviation>);

impl Found {
    fn add(&mut self, kind: DeviationKind, text: String) {
        self.0.push(Deviation { kind, text: one_line(text, Deviation::TEXT_BYTES_MAX) });
    }

    fn config(&mut self, expected: &str, config: &Config) {
        let path = Rke2Configure::CONFIG_PATH;
        match config {
            Config::Missing => self.add(DeviationKind::ConfigMissing, format!("{path} does not exist")),
            Config::Read { sha256 } if sha256 == expected => {}
            Config::Read { .. } => self.add(DeviationKind::ConfigChanged, format!("{path} was changed")),
            Config::Unreadable(why) => self.add(DeviationKind::ConfigChanged, why.clone()),
        }
    }

    async fn token(&mut self, path: &str, expected: &str, context: &Context) -> Result<(), TaskFailure> {
        let bytes = match read(context, path, TOKEN_BYTES_MAX).await? {
            Content::Missing => {
                self.add(DeviationKind::TokenMissing, format!("{path} does not exist"));
                return Ok(());
            }
            Content::Unreadable(why) => {
                self.add(DeviationKind::TokenChanged, why);
                return Ok(());
            }
            Content::Bytes(bytes) => bytes,
        };
        if sha256_hex(&bytes) != expected {
            self.add(DeviationKind::TokenChanged, format!("{path} was changed"));
        }
        // The file can be replaced between the two looks; then the next observation finds what this one missed.
        let mode = context.host.inventory().tree().own_mode(path);
        if let Ok(Some(mode)) = mode
            && mode != TOKEN_MODE
        {
            let text = format!("{path} has mode {mode:04o} instead of {TOKEN_MODE:04o}");
            self.add(DeviationKind::TokenChanged, text);
        }
        Ok(())
    }

    fn unit(&mut self, unit: &str, state: UnitFileState) {
        let (kind, what) = match state {
            UnitFileState::Enabled => return,
            UnitFileState::Disabled => (DeviationKind::UnitDisabled, "does not start at boot"),
            UnitFileState::Masked => (DeviationKind::UnitMasked, "is masked"),
            UnitFileState::Missing => (DeviationKind::UnitFileMissing, "has no unit file"),
        };
        self.add(kind, format!("{unit} {what}"));
    }

    async fn kubeconfig(&mut self, context: &Context) -> Result<(), TaskFailure> {
        match context.host.files().size(Utf8Path::new(KUBECONFIG)).await {
            Ok(Some(_)) => {}
            Ok(None) => self.add(DeviationKind::KubeconfigMissing, format!("{KUBECONFIG} does not exist")),
            Err(error @ HostError::UnsafePath { .. }) => self.add(DeviationKind::KubeconfigMissing, error.to_string()),
            Err(error) => return Err(host_failed(error)),
        }
        Ok(())
    }

    /// Adds the files that RKE2 reads in addition to its configuration.
    async fn foreign_config(&mut self, context: &Context) -> Result<(), TaskFailure> {
        let names = match context.host.files().list(Utf8Path::new(CONFIG_FOLDER)).await {
            Ok(names) => names,
            // RKE2 follows a link that the agent does not follow.
            Err(error @ HostError::UnsafePath { .. }) => {
                self.add(DeviationKind::ForeignConfig, error.to_string());
                return Ok(());
            }
            Err(error) => return Err(host_failed(error)),
        };
        let is_read = |name: &&String| name.ends_with(".yaml") || name.ends_with(".yml");
        let read: Vec<&String> = names.iter().filter(is_read).collect();
        for name in read.iter().take(FOREIGN_NAMED_MAX) {
            self.add(DeviationKind::ForeignConfig, format!("{CONFIG_FOLDER}/{name} exists"));
        }
        if let Some(more) = read.len().checked_sub(FOREIGN_NAMED_MAX).filter(|more| *more > 0) {
            self.add(DeviationKind::ForeignConfig, format!("{CONFIG_FOLDER} has {more} further files"));
        }
        Ok(())
    }
}

enum Content {
    Missing,
    Bytes(Zeroizing<Vec<u8>>),
    Unreadable(String),
}

/// Reads a file that can contain secrets.
async fn read(context: &Context, path: &str, bytes_max: u64) -> Result<Content, TaskFailure> {
    match context.host.files().read(Utf8Path::new(path), bytes_max).await {
        Ok(None) => Ok(Content::Missing),
        Ok(Some(bytes)) => Ok(Content::Bytes(Zeroizing::new(bytes))),
        Err(error @ (HostError::UnsafePath { .. } | HostError::TooLong { .. })) => {
            Ok(Content::Unreadable(error.to_string()))
        }
        Err(error) => Err(host_failed(error)),
    }
}
