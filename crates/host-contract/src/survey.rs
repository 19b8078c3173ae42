//! Reading facts of a host and setting its kernel parameters.

use gpuaas_host::Changed;

use crate::{Backend, Bench};

pub async fn host_reads_its_own_files(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let tree = bench.host.inventory().tree();
    assert_eq!(tree.line("/etc/machine-id"), bench.text("/etc/machine-id").await.trim());
    bench.file("/etc/contract/own", 0o600, "own").await;
    assert_eq!(
        (tree.own_text("/etc/contract/own").as_deref(), tree.own_exists("/etc/contract/none")),
        (Some("own"), false)
    );
    assert_eq!(tree.own_names("/etc/contract"), ["own"]);
    assert!(tree.text("/proc/sys/kernel/osrelease").is_some(), "files of the kernel are readable");
}

/// Uses a parameter of the loopback interface: a container has its own, and nothing depends on it.
pub async fn kernel_parameter_is_set_once_and_read_back(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let name = "net.ipv4.conf.lo.proxy_arp";
    let before = bench.host.inventory().tree().sysctl(name).unwrap();
    let other = if before == "0" { "1" } else { "0" };
    let set = async |value: &str| bench.host.set_sysctl(name, value).await.unwrap();
    assert_eq!((set(other).await, set(other).await), (Changed::Yes, Changed::No));
    assert_eq!(bench.host.inventory().tree().sysctl(name).as_deref(), Some(other));
    assert_eq!(
        backend.client().inventory().tree().sysctl(name).as_deref(),
        Some(other),
        "another client sees the new value"
    );
    assert_eq!(set(&before).await, Changed::Yes);
    for odd in ["net.ipv4.no_such_parameter", "../../etc/passwd", ""] {
        assert!(bench.host.set_sysctl(odd, "1").await.is_err(), "{odd}");
    }
}

/// Uses procfs, which is built into every kernel.
pub async fn loaded_module_is_not_loaded_again(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    assert_eq!(bench.host.load_module("proc").await.unwrap(), Changed::No);
    assert!(bench.host.load_module("../etc").await.is_err());
}
