//! The facts of a machine, which an inspection reports and a preflight judges.

use gpuaas_handler::Context;
use gpuaas_host::survey::{self, Tree};
use gpuaas_wire::task::{MachineFacts, Preflight};

use super::clock;

/// Data folder if the task names none.
const DATA_DIR: &str = "/var/lib";

/// Returns the data folder that the preflight's requirements name, or the default.
pub(crate) fn data_dir(preflight: Option<&Preflight>) -> &str {
    let wants = preflight.and_then(|preflight| preflight.wants.as_ref());
    wants.map(|wants| wants.data_dir.as_str()).filter(|folder| !folder.is_empty()).unwrap_or(DATA_DIR)
}

/// Returns the facts of a machine, without its GPUs, whose driver may take seconds to answer, and without the measured ones.
pub(crate) async fn machine_facts(context: &Context, tree: &Tree, folder: &str) -> MachineFacts {
    let cpus = survey::cpus(tree);
    let mut name_servers = survey::resolver(tree).unwrap_or_default().name_servers;
    name_servers.truncate(MachineFacts::NAME_SERVERS_MAX);
    MachineFacts {
        cpu_model: cpus.model,
        cpu_sockets: cpus.sockets,
        cpu_cores: cpus.cores,
        swap_bytes: survey::swap_bytes(tree),
        product: survey::product(tree),
        gpu_driver: survey::driver_version(tree),
        gpus: Vec::new(),
        file_systems: survey::file_systems(tree),
        data_disk: survey::data_disk(tree, folder),
        default_route: survey::default_route(tree),
        name_servers,
        clock: clock::clock_sync(&context.host, tree).await,
    }
}
