//! The facts that a host reports: processes, listeners, mounts, links, rules, paths.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use gpuaas_host::{Command, Listener, Protocol};

use crate::{Backend, Bench, bench::command};

pub async fn processes_are_found_by_the_folder_of_their_program(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let folder = "/usr/local/lib/contract";
    bench.run(&format!("mkdir -p $root{folder} && cp \"$(command -v sleep)\" $root{folder}/sleeper")).await;
    bench.service("sleeps", "", &format!("exec $root{folder}/sleeper 1000")).await;
    bench.host.units().start("sleeps.service").await.unwrap();
    let program = format!("{folder}/sleeper");
    bench.until_running("sleeps.service").await;
    let listed = async |prefix: &str| bench.host.inventory().processes(&[prefix.to_owned()]).await.unwrap();
    // The unit may run before its shell has executed the program.
    let found = loop {
        if let [found] = &listed(folder).await[..] {
            break found.clone();
        }
    };
    assert_eq!((found.pid, &found.program), (bench.status("sleeps.service").await.main_pid, &program));
    assert_eq!(listed(&program).await.len(), 1);
    assert_eq!(listed("/usr/local/lib/contr").await, [], "a prefix matches whole path components");
    assert_eq!(listed("/usr/local/lib/other").await, []);
    bench.host.units().stop("sleeps.service").await.unwrap();
    assert_eq!(listed(folder).await, []);
}

pub async fn listeners_are_found_at_the_nodes_and_at_any_address(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let own = TcpListener::bind(SocketAddr::new(bench.host.inventory().address(), 0)).unwrap();
    let every = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let elsewhere = TcpListener::bind((Ipv4Addr::new(127, 255, 255, 254), 0)).unwrap();
    let mut ports = [&own, &every, &elsewhere].map(|listener| listener.local_addr().unwrap().port());
    let elsewhere = ports[2];
    ports.sort_unstable();
    let expected: Vec<u16> = ports.into_iter().filter(|port| *port != elsewhere).collect();
    assert_eq!(bench.host.inventory().listening(&ports).await.unwrap(), expected);
    assert_eq!(bench.host.inventory().listening(&expected[..1]).await.unwrap(), &expected[..1]);
    if let Ok(every) = TcpListener::bind((std::net::Ipv6Addr::UNSPECIFIED, 0)) {
        let port = every.local_addr().unwrap().port();
        assert_eq!(bench.host.inventory().listening(&[port]).await.unwrap(), [port]);
    }
    drop(own);
}

pub async fn paths_are_listed_and_measured(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.file("/var/lib/contract/b", 0o600, "12345").await;
    bench.run("cd $root/var/lib/contract && mkdir a && ln -s nowhere c").await;
    assert_eq!(bench.host.files().list("/var/lib/contract".into()).await.unwrap(), ["a", "b", "c"]);
    assert!(bench.host.files().list("/var/lib/contract/nowhere".into()).await.unwrap().is_empty());
    assert_eq!(bench.host.files().size("/var/lib/contract/b".into()).await.unwrap(), Some(5));
    assert_eq!(bench.host.files().size("/var/lib/contract/nowhere".into()).await.unwrap(), None);
    assert!(bench.host.files().exists("/var/lib/contract/c".into()).await.unwrap(), "a dangling link exists");
    assert!(!bench.host.files().exists("/var/lib/contract/nowhere".into()).await.unwrap());
}

pub async fn facts_describe_the_host(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let facts = bench.host.inventory().facts().await.unwrap();
    assert_eq!(facts.machine_id, bench.text("/etc/machine-id").await.trim());
    assert_eq!(facts.machine_id.len(), 32);
    assert_eq!(facts.addresses[0], bench.host.inventory().address().to_string());
    assert!(facts.cpus > 0 && facts.memory_bytes > 0 && facts.disks[0].size_bytes >= facts.disks[0].free_bytes);
    assert!(!facts.boot_id.is_empty() && !facts.hostname.is_empty());
}

pub async fn program_gets_the_variables_of_its_command(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.program("shows", "echo \"given ${GIVEN:-nothing}\"").await;
    let shown = async |environment: &[(&str, &str)]| {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let command = Command { environment, ..command("/usr/local/bin/shows") };
        bench.host.run(&command).await.unwrap().output
    };
    assert_eq!(shown(&[("GIVEN", "a b=c")]).await, "given a b=c\n");
    assert_eq!(shown(&[]).await, "given nothing\n");
}

pub async fn processes_have_their_unit(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    bench.service("owns", "KillMode=process", "setsid sleep 1000 & echo say: child $!; exec sleep 1000").await;
    bench.host.units().start("owns.service").await.unwrap();
    let child = bench.number("owns.service", "say: child").await;
    bench.until_program_is(child, "sleep").await;
    let main = bench.until_running("owns.service").await.main_pid;
    let process = async |pid: i32| {
        let found = bench.host.inventory().processes(&[]).await.unwrap();
        found.into_iter().find(|process| process.pid == pid).unwrap()
    };
    let unit = async |pid: i32| process(pid).await.unit;
    let group = process(child).await.cgroup;
    assert_eq!(group.ends_with("/owns.service"), backend.is_machine(), "{group:?}");
    assert_eq!(
        (unit(main).await.as_deref(), unit(child).await.as_deref()),
        (Some("owns.service"), Some("owns.service"))
    );
    bench.host.units().stop("owns.service").await.unwrap();
    assert_eq!(unit(child).await.as_deref(), Some("owns.service"), "the process still belongs to its stopped unit");
    bench.run(&format!("kill -9 {child}")).await;
}

pub async fn listener_has_its_process(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let listen = format!("exec {} listen {}", backend.program(), bench.host.inventory().address());
    bench.service("listens", "", &listen).await;
    bench.host.units().start("listens.service").await.unwrap();
    let mut ports = [0; 2];
    for (port, word) in ports.iter_mut().zip(["say: tcp", "say: udp"]) {
        *port = u16::try_from(bench.number("listens.service", word).await).unwrap();
    }
    let main = bench.until_running("listens.service").await.main_pid;
    let held = async || -> Vec<Listener> {
        let found = bench.host.inventory().listeners().await.unwrap();
        found
            .into_iter()
            .filter(|listener| listener.process.as_ref().is_some_and(|holder| holder.pid == main))
            .collect()
    };
    let found = held().await;
    let mut addresses: Vec<_> = found.iter().map(|listener| (listener.protocol, listener.address)).collect();
    addresses.sort_unstable();
    let at = |port: u16| SocketAddr::new(bench.host.inventory().address(), port);
    assert_eq!(addresses, [(Protocol::Tcp, at(ports[0])), (Protocol::Udp, at(ports[1]))]);
    let holder = found[0].process.as_ref().unwrap();
    assert_eq!(
        (holder.unit.as_deref(), holder.program.rsplit('/').next()),
        (Some("listens.service"), Some("contract-node"))
    );
    bench.host.units().stop("listens.service").await.unwrap();
    assert_eq!(held().await, []);
}

pub async fn mounts_are_found_by_prefix(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let mounts = async |prefix: &str| bench.host.inventory().mounts(&[prefix.to_owned()]).await.unwrap();
    assert_eq!(mounts("/var/lib/contract").await, [""; 0]);
    if !backend.is_machine() {
        return;
    }
    let place = "/var/lib/contract/a b";
    assert_eq!(bench.run(&format!("mkdir -p '{place}' && mount -t tmpfs none '{place}'")).await.status, Some(0));
    let (under, itself, other) =
        (mounts("/var/lib/contract").await, mounts(place).await, mounts("/var/lib/contr").await);
    assert_eq!(bench.run(&format!("umount '{place}'")).await.status, Some(0));
    assert_eq!((under, itself, other), (vec![place.to_owned()], vec![place.to_owned()], Vec::new()));
    assert_eq!(mounts("/var/lib/contract").await, [""; 0]);
}

pub async fn link_is_listed_while_it_exists(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let before = bench.host.inventory().links().await.unwrap();
    if !backend.is_machine() {
        return assert_eq!(before, [""; 0], "a sandbox has no links");
    }
    assert_eq!(bench.run("ip link add contract0 type bridge").await.status, Some(0));
    let during = bench.host.inventory().links().await.unwrap();
    assert_eq!(bench.run("ip link delete contract0").await.status, Some(0));
    assert!(
        before.iter().all(|link| during.contains(link)) && before.contains(&"lo".to_owned()),
        "{before:?} {during:?}"
    );
    assert_eq!((during.len(), during.contains(&"contract0".to_owned())), (before.len() + 1, true));
    assert_eq!(bench.host.inventory().links().await.unwrap(), before);
}

pub async fn firewall_rules_are_found_by_substring(backend: &dyn Backend) {
    let bench = Bench::of(backend);
    let rules = async || bench.host.inventory().firewall_rules(&["CONTRACT-".to_owned()]).await.unwrap();
    assert_eq!(rules().await.as_deref(), Some(&[][..]));
    if !backend.is_machine() {
        return;
    }
    for iptables in ["iptables-nft", "iptables-legacy"] {
        let add = format!("{iptables} -N CONTRACT-ONE && {iptables} -A FORWARD -j CONTRACT-ONE && {iptables} -N OTHER");
        assert_eq!(bench.run(&add).await.status, Some(0), "{iptables}");
        let found = rules().await.unwrap();
        let drop = format!("{iptables} -F && {iptables} -X CONTRACT-ONE && {iptables} -X OTHER");
        assert_eq!(bench.run(&drop).await.status, Some(0), "{iptables}");
        assert!(found.len() == 2 && found.iter().all(|rule| rule.contains("filter: ")), "{iptables}: {found:#?}");
    }
    assert_eq!(bench.run("nft add table inet CONTRACT-TABLE").await.status, Some(0));
    let found = rules().await.unwrap();
    assert_eq!(bench.run("nft delete table inet CONTRACT-TABLE").await.status, Some(0));
    assert_eq!(found, ["table inet CONTRACT-TABLE"]);
}
