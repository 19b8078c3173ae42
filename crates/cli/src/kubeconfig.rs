//! Merges a kubeconfig into the file that kubectl uses.
//!
//! Guarantees: the file is replaced as a whole or not at all, keeps every other entry, and is readable by its owner alone. A file that is not
//! a kubeconfig is refused untouched. kubectl's own lock, `FILE.lock`, keeps two writers apart. Comments are lost, as with kubectl.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use gpuaas_client::ClientError;
use gpuaas_server::write_private;
use serde_json::{Map, Value, json};

/// Lists of named entries in a kubeconfig, each with the name of the entry's content.
const SECTIONS: [(&str, &str); 3] = [("clusters", "cluster"), ("users", "user"), ("contexts", "context")];

/// Fails if the file is there but is no kubeconfig.
pub(crate) fn check(path: &Path) -> anyhow::Result<()> {
    read(path).map(drop)
}

/// Returns the file that kubectl changes: of `$KUBECONFIG` the first that exists, otherwise the last; without it `~/.kube/config`.
pub(crate) fn default_path() -> anyhow::Result<PathBuf> {
    let set = env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let named: Vec<PathBuf> =
        set.iter().flat_map(env::split_paths).filter(|path| !path.as_os_str().is_empty()).collect();
    if let Some(path) = named.iter().find(|path| path.exists()).or(named.last()) {
        return Ok(path.clone());
    }
    let home = env::var_os("HOME").filter(|value| !value.is_empty());
    let unset = || ClientError::InvalidSetting("neither KUBECONFIG nor HOME is set".to_owned());
    let home = home.ok_or_else(unset)?;
    Ok(Path::new(&home).join(".kube/config"))
}

/// A kubeconfig that no other program changes.
pub(crate) struct LockedFile {
    path: PathBuf,
    lock: PathBuf,
    content: Map<String, Value>,
}

impl LockedFile {
    /// Locks and reads a kubeconfig; a missing file is an empty one.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        // A link is kept: the file that it names is replaced.
        let path = if path.exists() { fs::canonicalize(path)? } else { std::path::absolute(path)? };
        let folder = path.parent().with_context(|| format!("{} is no file", path.display()))?;
        let creating = || format!("creating {}", folder.display());
        fs::DirBuilder::new().recursive(true).mode(0o750).create(folder).with_context(creating)?;
        let mut lock = path.clone().into_os_string();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        fs::File::create_new(&lock).with_context(|| {
            format!("locking {}: if no kubectl is changing it, remove {}", path.display(), lock.display())
        })?;
        let mut file = Self { path, lock, content: Map::new() };
        file.content = read(&file.path)?;
        Ok(file)
    }

    /// Replaces the entries called `name` by those of a kubeconfig with one cluster, user and context, and returns the file's path. Refuses to
    /// replace a cluster of another address, which other contexts may use.
    pub(crate) fn merge(mut self, delivered: &str, name: &str, keep_current: bool) -> anyhow::Result<PathBuf> {
        let delivered: Value = serde_saphyr::from_str(delivered).context("reading the delivered kubeconfig")?;
        for (section, kind) in SECTIONS {
            let mut content = delivered[section][0][kind].clone();
            ensure!(content.is_object(), "the delivered kubeconfig has no {kind}");
            if kind == "context" {
                (content["cluster"], content["user"]) = (json!(name), json!(name));
            }
            let entry = json!({ "name": name, kind: content });
            let entries = self.content.entry(section).or_insert(Value::Null);
            if entries.is_null() {
                *entries = json!([]);
            }
            let Some(entries) = entries.as_array_mut() else { bail!("{}: {section} is no list", self.path.display()) };
            match entries.iter_mut().find(|entry| entry["name"] == name) {
                Some(known) if kind == "cluster" && known[kind]["server"] != entry[kind]["server"] => bail!(
                    "{}: {name} is another cluster, {}; choose another name with --kube-context, or remove it: kubectl config \
                     delete-cluster {name}",
                    self.path.display(),
                    known[kind]["server"].as_str().unwrap_or("without a server"),
                ),
                Some(known) => *known = entry,
                None => entries.push(entry),
            }
        }
        if !keep_current {
            self.content.insert("current-context".to_owned(), json!(name));
        }
        for (field, value) in [("apiVersion", "v1"), ("kind", "Config")] {
            self.content.entry(field).or_insert(json!(value));
        }
        let text = serde_saphyr::to_string(&self.content)?;
        write_private(&self.path, text.as_bytes()).with_context(|| format!("writing {}", self.path.display()))?;
        Ok(self.path.clone())
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Without the file, the lock is open already.
        let _ = fs::remove_file(&self.lock);
    }
}

fn read(path: &Path) -> anyhow::Result<Map<String, Value>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Map::new()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    // The parser's message quotes the line, which may hold a token.
    let refuse = || {
        format!(
            "{} is not a kubeconfig and stays as it is; repair it, or name another file in KUBECONFIG",
            path.display()
        )
    };
    let content: Map<String, Value> = serde_saphyr::from_str(&text).map_err(|_| anyhow::anyhow!(refuse()))?;
    let is_list = |section: &str| content.get(section).is_none_or(|of| of.is_array() || of.is_null());
    let is_kubeconfig = content.get("kind").is_none_or(|kind| kind == "Config");
    ensure!(is_kubeconfig && SECTIONS.iter().all(|(section, _)| is_list(section)), refuse());
    Ok(content)
}

#[cfg(test)]
mod tests;
