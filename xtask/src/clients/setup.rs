//! The control plane with which generated clients deploy.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use camino::{Utf8Path, Utf8PathBuf};
use gpuaas_api_types::{CreateAllocation, CreateProject, CreateToken, ImportRelease};
use gpuaas_client::Client;

use super::Language;
use crate::{components, dev_server::Server, package::programs, release, shell};

/// Longest wait until the release is imported and the nodes are allocated.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Project that deploys.
const PROJECT: &str = "clients";

/// A running `gpuaas dev` with a release, a project and its allocations.
pub(super) struct Platform {
    server: Server,
    /// Token of a member of the project.
    token: String,
    /// Allocations by node.
    allocations: Vec<(&'static str, String)>,
    document: String,
    folder: tempfile::TempDir,
}

impl Platform {
    pub(super) fn start<const N: usize>(nodes: [&'static str; N]) -> anyhow::Result<Self> {
        let components = components::ensure(
            &components::ComponentsOptions { download: false, dir: None },
            components::Part::ControlPlane,
        )?;
        let options =
            release::ReleaseOptions { components, node: None, rke2: None, profile: "dev".to_owned(), out: None };
        let release = release::build(&options)?;
        let key = release::public_key(&release)?;
        let programs = programs::folder("dev")?;
        let folder = tempfile::tempdir().context("creating a folder for the control plane")?;
        let root = Utf8Path::from_path(folder.path()).context("the temporary folder's path is not UTF-8")?;
        let trusted = [("GPUAAS_RELEASE_TRUSTED_KEYS", key.as_str())];
        let server = Server::start(&programs.join("gpuaas"), root, &trusted)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = server.client()?;
        let (token, allocations) = runtime.block_on(async {
            let prepared = tokio::time::timeout(READY_TIMEOUT, prepare(&client, &release, &nodes)).await;
            prepared.context("the nodes were not allocated in time")?
        })?;
        let document = runtime.block_on(client.read_text("/api/v1/openapi.json"))?;
        Ok(Self { server, token, allocations, document, folder })
    }

    /// Generates a client in a new folder, and runs the program that deploys with it.
    pub(super) fn deploy_with(&self, language: &Language) -> anyhow::Result<()> {
        let folder = self.folder.path().join(language.name);
        let folder = Utf8PathBuf::from_path_buf(folder).ok().context("the temporary folder's path is not UTF-8")?;
        fs::create_dir(&folder)?;
        fs::write(folder.join("openapi.json"), &self.document)?;
        let mut deploy = (language.generate)(&folder)?;
        let allocation = self.allocations.iter().find(|(node, _)| *node == language.node);
        let (_, allocation) = allocation.context("every language has an allocation")?;
        let workload = language.name.to_ascii_lowercase();
        deploy.current_dir(&folder).envs([
            ("GPUAAS_URL", self.server.url.as_str()),
            ("GPUAAS_CA_FILE", &self.server.ca_file),
            ("NODE_EXTRA_CA_CERTS", &self.server.ca_file),
            ("GPUAAS_TOKEN", &self.token),
            ("GPUAAS_ALLOCATION", allocation),
            ("GPUAAS_WORKLOAD", &workload),
        ]);
        shell::run(&format!("deploying with the client in {}", language.name), &mut deploy)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = self.server.client()?;
        let deployed = runtime.block_on(client.get_workload(Some(PROJECT.to_owned()), &workload))?;
        ensure!(deployed.workload.lifecycle == "running", "{workload} is {}", deployed.workload.lifecycle);
        Ok(())
    }
}

/// Imports the release, allocates the nodes to a project, and returns the token of a member with the active allocations.
async fn prepare(
    client: &Client,
    release: &Utf8Path,
    nodes: &[&'static str],
) -> anyhow::Result<(String, Vec<(&'static str, String)>)> {
    let import = ImportRelease {
        app: "rke2".to_owned(),
        source: release.to_string(),
        version: None,
        sums_sha256: None,
        signature: None,
    };
    client.import_artifacts(&import).await?;
    client.create_project(&CreateProject { name: PROJECT.to_owned() }).await?;
    let mut allocations = Vec::new();
    for node in nodes {
        let ask = CreateAllocation { project: PROJECT.to_owned(), node: (*node).to_owned() };
        let id = client.create_allocation(&ask).await?.id;
        while client.get_allocation(&id).await?.state != "active" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        allocations.push((*node, id));
    }
    let member = CreateToken {
        name: "client".to_owned(),
        role: "project-member".to_owned(),
        project: Some(PROJECT.to_owned()),
        ttl_seconds: None,
    };
    Ok((client.create_token(&member).await?.secret, allocations))
}
