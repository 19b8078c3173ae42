//! The agent's few switches. The enrollment string comes by environment or file, never by argument: arguments are everybody's to read.

use camino::Utf8PathBuf;

/// The node agent of GPUaaS.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "gpuaas-agent", version, about)]
pub struct Options {
    /// What to do instead of serving the control plane.
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// A file that holds the enrollment string; removed once it was used. `GPUAAS_ENROLL` may hold the string itself instead.
    #[arg(long, env = "GPUAAS_ENROLL_FILE", default_value = "/var/lib/gpuaas-agent/enroll")]
    pub enroll_file: Utf8PathBuf,
    /// A file that holds the value which shows that this machine was reimaged; a reimage hook lays it into the fresh image. Removed once it was used.
    #[arg(long, env = "GPUAAS_REIMAGE_FILE", default_value = "/var/lib/gpuaas-agent/reimage")]
    pub reimage_file: Utf8PathBuf,
}

/// What the agent does besides serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Subcommand)]
pub enum Verb {
    /// Redeem the enrollment string, say what came of it, and end
    Enroll,
    /// Say as which node this machine is enrolled, and end
    Status,
}
