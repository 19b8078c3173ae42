//! `host.inspect`: reports what the node consists of, and on request whether an app can run on it. Changes nothing, except for one file
//! that a measurement creates and removes.

use std::time::Duration;

use gpuaas_handler::{Context, host_failed};
use gpuaas_host::{
    Command,
    survey::{self, Tree, WriteLimits},
};
use gpuaas_wire::task::{GpuFacts, Inspect, Inspection, Measure, TaskFailure, WriteLatency};

use super::{
    machine::{data_dir, machine_facts},
    preflight,
};

/// NVIDIA's own program; its first run after a boot takes seconds if no daemon keeps the driver loaded.
const NVIDIA_SMI: &str = "/usr/bin/nvidia-smi";
const NVIDIA_SMI_TIMEOUT: Duration = Duration::from_secs(20);

/// Collects the facts. Measures the disk and runs the preflight, each only if the task requests it.
pub(crate) async fn run(task: Inspect, context: Context) -> Result<Inspection, TaskFailure> {
    let host = &context.host;
    let facts = host.inventory().facts().await.map_err(host_failed)?;
    let tree = host.inventory().tree();
    let folder = data_dir(task.preflight.as_ref());
    let mut machine = machine_facts(&context, &tree, folder).await;
    machine.gpus = survey::gpus(&tree);
    if !machine.gpus.is_empty() {
        set_gpu_memory(&mut machine.gpus, &gpu_memory(&context).await);
    }
    let measures = match task.measure {
        None => false,
        Some(Measure::OwnDisk) => !tree.is_sandbox(),
        Some(Measure::AnyDisk) => true,
    };
    if let (true, Some(disk)) = (measures, &mut machine.data_disk) {
        context.report_progress(format!("measuring writes under {folder}"));
        // The preflight reports the cause of a failed measurement.
        disk.writes = measure_writes(&tree, folder).await.unwrap_or_else(|failure| {
            tracing::warn!(folder, why = failure.message, "could not measure writes");
            None
        });
    }
    let preflight = match &task.preflight {
        Some(preflight) => Some(preflight::check_host(preflight, &context, &facts, &machine).await?),
        None => None,
    };
    Ok(Inspection { facts, machine: Some(machine), preflight })
}

/// Measures the latency of writes on a thread for blocking work: it blocks for at most half a second.
async fn measure_writes(tree: &Tree, folder: &str) -> Result<Option<WriteLatency>, TaskFailure> {
    let (tree, folder) = (tree.clone(), folder.to_owned());
    let measuring = tokio::task::spawn_blocking(move || survey::write_latency(&tree, &folder, WriteLimits::DEFAULT));
    let measured = measuring.await;
    measured
        .map_err(|error| TaskFailure::new(gpuaas_model::Code::Internal, format!("the measurement: {error}")))?
        .map_err(host_failed)
}

/// Returns the GPUs' memory as NVIDIA's program prints it: lines of a bus address and MiB. Empty if the program is missing or does not
/// answer: the other facts come from the bus.
async fn gpu_memory(context: &Context) -> String {
    if !context.host.files().exists(NVIDIA_SMI.into()).await.unwrap_or(false) {
        return String::new();
    }
    let arguments = ["--query-gpu=pci.bus_id,memory.total", "--format=csv,noheader,nounits"].map(str::to_owned).into();
    let command = Command {
        program: NVIDIA_SMI.into(),
        arguments,
        environment: Vec::new(),
        timeout: NVIDIA_SMI_TIMEOUT.min(context.time_left() / 2),
    };
    match context.host.run(&command).await {
        Ok(end) if end.status == Some(0) => end.output,
        Ok(end) => {
            tracing::warn!(status = ?end.status, "nvidia-smi did not report the memory of the GPUs");
            String::new()
        }
        Err(error) => {
            tracing::warn!(%error, "nvidia-smi did not report the memory of the GPUs");
            String::new()
        }
    }
}

/// Stores the memory of each GPU. Parses lines like `00000000:3B:00.0, 143771`: the program prints eight digits where the kernel prints
/// four, and upper case.
fn set_gpu_memory(gpus: &mut [GpuFacts], output: &str) {
    for line in output.lines() {
        let Some((bus, mib)) = line.split_once(',') else { continue };
        let bus = bus.trim().to_ascii_lowercase();
        let is_at_bus = |gpu: &GpuFacts| bus.ends_with(&gpu.bus);
        let memory_bytes = mib.trim().parse::<u64>().ok().map(|mib| mib << 20);
        if let Some(gpu) = gpus.iter_mut().find(|gpu| is_at_bus(gpu)) {
            gpu.memory_bytes = memory_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_set_for_the_gpu_at_its_bus_address() {
        let gpu = |bus: &str| GpuFacts { bus: bus.to_owned(), ..GpuFacts::default() };
        let mut gpus = vec![gpu("0000:3b:00.0"), gpu("0000:5e:00.0"), gpu("0000:86:00.0")];
        set_gpu_memory(&mut gpus, "00000000:3B:00.0, 143771\n00000000:5E:00.0, [N/A]\nnonsense\n00000000:AF:00.0, 1\n");
        let memory: Vec<Option<u64>> = gpus.into_iter().map(|gpu| gpu.memory_bytes).collect();
        assert_eq!(memory, [Some(143_771 << 20), None, None]);
    }
}
