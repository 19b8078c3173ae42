//! The agent's command line. The enrollment string comes from the environment or a file, never from an argument: every user can read
//! arguments.

use camino::Utf8PathBuf;

/// The node agent of GPUaaS.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "gpuaas-agent", version, about)]
pub struct Options {
    /// Subcommand to run instead of serving the control plane.
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// File with the enrollment string; the agent removes it after use. `GPUAAS_ENROLL` may hold the string itself instead.
    #[arg(long, env = "GPUAAS_ENROLL_FILE", default_value = "/var/lib/gpuaas-agent/enroll")]
    pub enroll_file: Utf8PathBuf,
    /// File with the value that proves that this machine was reimaged; a reimage hook writes it into the fresh image. The agent removes it
    /// after use.
    #[arg(long, env = "GPUAAS_REIMAGE_FILE", default_value = "/var/lib/gpuaas-agent/reimage")]
    pub reimage_file: Utf8PathBuf,
}

/// Subcommands of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Subcommand)]
pub enum Verb {
    /// Redeem the enrollment string, print the result, and exit
    Enroll,
    /// Print the node as which this machine is enrolled, and exit
    Status,
}
