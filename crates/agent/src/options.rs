//! The agent's few switches. The enrollment string comes by environment or file, never by argument: arguments are everybody's to read.

use camino::Utf8PathBuf;

/// The node agent of GPUaaS.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "gpuaas-agent", version, about)]
pub struct Options {
    /// A file that holds the enrollment string; removed once it was used. `GPUAAS_ENROLL` may hold the string itself instead.
    #[arg(long, env = "GPUAAS_ENROLL_FILE", default_value = "/var/lib/gpuaas-agent/enroll")]
    pub enroll_file: Utf8PathBuf,
}
