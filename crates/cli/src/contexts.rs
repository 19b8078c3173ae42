//! The context file: control planes with their tokens. It must be readable by its owner alone.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use gpuaas_client::ClientError;
use gpuaas_server::write_private;
use serde::{Deserialize, Serialize};

use crate::output::NotFound;

/// All contexts and the name of the current one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// Name of the context that commands use without `--context`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) current: Option<String>,
    /// Contexts by name.
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// One control plane, with the token of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    /// URL of the control plane.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) url: Option<String>,
    /// PEM file with the control plane's certificate authority.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ca_file: Option<PathBuf>,
    /// API token.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) token: Option<String>,
    /// Project, by name or id, that commands use by default.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) project: Option<String>,
}

impl Contexts {
    /// Reads the user's context file. A missing file is an empty one.
    pub(crate) fn load() -> anyhow::Result<Self> {
        Self::read(&path()?)
    }

    /// Writes the contexts atomically with mode 0600 and returns the file's path.
    pub(crate) fn save(&self) -> anyhow::Result<PathBuf> {
        let path = path()?;
        let folder = path.parent().context("the context file's path has no parent folder")?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("creating {}", folder.display()))?;
        write_private(&path, toml::to_string_pretty(self)?.as_bytes())
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        let mode = fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            let refused =
                format!("other users can read {}, which contains tokens: run chmod 600 on it", path.display());
            return Err(ClientError::InvalidSetting(refused).into());
        }
        // The parser's message quotes the line, which may hold a token.
        toml::from_str(&text).map_err(|_| {
            ClientError::InvalidSetting(format!("{} is not a valid context file; repair or remove it", path.display()))
                .into()
        })
    }

    /// Returns the named context, or the current one; `None` without either. An unknown name is an error.
    pub(crate) fn chosen(&self, name: Option<&str>) -> anyhow::Result<Option<&Context>> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        let found = self.contexts.get(name);
        found.map(Some).ok_or_else(|| {
            NotFound { what: format!("there is no context {name}"), next: "see gpuaas context list".to_owned() }.into()
        })
    }
}

/// Longest name of a context, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Refuses a name that a shell would split or take for a flag.
pub(crate) fn check_name(name: &str) -> Result<(), ClientError> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/@:".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(is_valid) {
        return Ok(());
    }
    let refused =
        format!("{name:?} is not a valid name of a context: use 1 to {NAME_BYTES_MAX} letters, digits and ._-/@:");
    Err(ClientError::InvalidSetting(refused))
}

/// Returns `$XDG_CONFIG_HOME/gpuaas/contexts.toml`, by default `~/.config/gpuaas/contexts.toml`.
fn path() -> anyhow::Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let unset = || ClientError::InvalidSetting("neither XDG_CONFIG_HOME nor HOME is set".to_owned());
    Ok(config.ok_or_else(unset)?.join("gpuaas/contexts.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_readable_by_others_is_refused_and_errors_quote_no_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("contexts.toml");
        fs::write(&path, "token_secret = 1").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        let refused = Contexts::read(&path).expect_err("others can read it").to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        let refused = Contexts::read(&path).expect_err("an unknown key").to_string();
        assert!(!refused.contains("token_secret"), "{refused}");
    }

    #[test]
    fn missing_file_is_empty_unknown_context_is_named_and_wrong_names_are_refused() {
        let none = Contexts::read(Path::new("/nonexistent/contexts.toml")).expect("empty");
        assert_eq!(none, Contexts::default());
        assert!(none.chosen(None).expect("none is current").is_none());
        assert!(check_name("cp/eu-1").is_ok());
        for wrong in ["", "a b", "-x", "a\nb", &"x".repeat(64)] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
        assert!(none.chosen(Some("x")).expect_err("unknown").to_string().contains("no context x"));
    }
}
