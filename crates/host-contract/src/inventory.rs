//! What a host tells of itself: processes, listeners, paths, facts.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::{Backend, Bench};

pub async fn processes_are_told_by_the_folder_of_their_program(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let folder = "/usr/local/lib/contract";
    bench.run(&format!("mkdir -p $root{folder} && cp \"$(command -v sleep)\" $root{folder}/sleeper")).await;
    bench.service("sleeps", "", &format!("exec $root{folder}/sleeper 1000")).await;
    bench.host.start("sleeps.service").await.unwrap();
    let program = format!("{folder}/sleeper");
    bench.until_running("sleeps.service").await;
    let listed = async |prefix: &str| bench.host.processes(&[prefix.to_owned()]).await.unwrap();
    // Started is one thing; that the shell has become the program, another.
    let found = loop {
        if let [found] = &listed(folder).await[..] {
            break found.clone();
        }
    };
    assert_eq!((found.pid, &found.program), (bench.status("sleeps.service").await.main_pid, &program));
    assert_eq!(listed(&program).await.len(), 1);
    assert_eq!(listed("/usr/local/lib/contr").await, [], "a prefix ends where a name ends");
    assert_eq!(listed("/usr/local/lib/other").await, []);
    bench.host.stop("sleeps.service").await.unwrap();
    assert_eq!(listed(folder).await, []);
}

pub async fn listeners_are_told_at_the_nodes_address_and_at_every_address(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let own = TcpListener::bind(SocketAddr::new(bench.host.address(), 0)).unwrap();
    let every = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let elsewhere = TcpListener::bind((Ipv4Addr::new(127, 255, 255, 254), 0)).unwrap();
    let mut ports = [&own, &every, &elsewhere].map(|listener| listener.local_addr().unwrap().port());
    let elsewhere = ports[2];
    ports.sort_unstable();
    let expected: Vec<u16> = ports.into_iter().filter(|port| *port != elsewhere).collect();
    assert_eq!(bench.host.listening(&ports).await.unwrap(), expected);
    assert_eq!(bench.host.listening(&expected[..1]).await.unwrap(), &expected[..1]);
    if let Ok(every) = TcpListener::bind((std::net::Ipv6Addr::UNSPECIFIED, 0)) {
        let port = every.local_addr().unwrap().port();
        assert_eq!(bench.host.listening(&[port]).await.unwrap(), [port]);
    }
    drop(own);
}

pub async fn paths_are_told_as_they_are(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.file("/var/lib/contract/b", 0o600, "12345").await;
    bench.run("cd $root/var/lib/contract && mkdir a && ln -s nowhere c").await;
    assert_eq!(bench.host.list("/var/lib/contract".into()).await.unwrap(), ["a", "b", "c"]);
    assert!(bench.host.list("/var/lib/contract/nowhere".into()).await.unwrap().is_empty());
    assert_eq!(bench.host.size("/var/lib/contract/b".into()).await.unwrap(), Some(5));
    assert_eq!(bench.host.size("/var/lib/contract/nowhere".into()).await.unwrap(), None);
    assert!(bench.host.exists("/var/lib/contract/c".into()).await.unwrap(), "a link that leads nowhere is there");
    assert!(!bench.host.exists("/var/lib/contract/nowhere".into()).await.unwrap());
}

pub async fn a_host_says_what_it_is(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let facts = bench.host.facts().await.unwrap();
    assert_eq!(facts.machine_id, bench.text("/etc/machine-id").await.trim());
    assert_eq!(facts.machine_id.len(), 32);
    assert_eq!(facts.addresses[0], bench.host.address().to_string());
    assert!(facts.cpus > 0 && facts.memory_bytes > 0 && facts.disks[0].size_bytes >= facts.disks[0].free_bytes);
    assert!(!facts.boot_id.is_empty() && !facts.hostname.is_empty());
}
