//! The default route and the MTU of its link.

use std::net::{Ipv4Addr, Ipv6Addr};

use gpuaas_wire::task::RouteFacts;

use super::Tree;

const LINKS: &str = "/sys/class/net";

/// Returns a link's MTU in bytes; 0 if it cannot be read.
pub fn link_mtu(tree: &Tree, link: &str) -> u32 {
    tree.line(&format!("{LINKS}/{link}/mtu")).parse().unwrap_or(0)
}

/// Returns the default route with the lowest metric: the IPv4 one, or the IPv6 one if there is no IPv4 default route. A sandbox has no
/// routes of its own.
pub fn default_route(tree: &Tree) -> Option<RouteFacts> {
    let (_, gateway, link) =
        cheapest(tree, "/proc/net/route", v4).or_else(|| cheapest(tree, "/proc/net/ipv6_route", v6))?;
    Some(RouteFacts { gateway, mtu: link_mtu(tree, &link), link })
}

type Route = (u32, Option<String>, String);

fn cheapest(tree: &Tree, table: &str, read: fn(&[&str]) -> Option<Route>) -> Option<Route> {
    let table = tree.own_text(table)?;
    let routes = table.lines().filter_map(|line| read(&line.split_whitespace().collect::<Vec<_>>()));
    routes.min_by_key(|(metric, _, _)| *metric)
}

/// Route flags: the route is up, and it does not reject packets.
const UP: u32 = 0x1;
const REJECT: u32 = 0x200;

/// `eth0 00000000 010200C0 0003 0 0 100 00000000 …`: addresses in the machine's byte order.
fn v4(fields: &[&str]) -> Option<Route> {
    let [link, destination, gateway, flags, _, _, metric, mask, ..] = fields else { return None };
    let usable = u32::from_str_radix(flags, 16).ok()? & (UP | REJECT) == UP;
    if *destination != "00000000" || *mask != "00000000" || !usable {
        return None;
    }
    let gateway = Ipv4Addr::from(u32::from_str_radix(gateway, 16).ok()?.to_ne_bytes());
    let gateway = (!gateway.is_unspecified()).then(|| gateway.to_string());
    Some((metric.parse().ok()?, gateway, (*link).to_owned()))
}

/// `00…00 00 00…00 00 fe80…01 00000400 00000001 00000000 00000003 eth0`.
fn v6(fields: &[&str]) -> Option<Route> {
    let [destination, bits, _, _, gateway, metric, _, _, flags, link] = fields else { return None };
    let usable = u32::from_str_radix(flags, 16).ok()? & (UP | REJECT) == UP;
    if *bits != "00" || destination.bytes().any(|byte| byte != b'0') || !usable || *link == "lo" {
        return None;
    }
    let gateway = Ipv6Addr::from(u128::from_str_radix(gateway, 16).ok()?);
    let gateway = (!gateway.is_unspecified()).then(|| gateway.to_string());
    Some((u32::from_str_radix(metric, 16).ok()?, gateway, (*link).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::machine, *};

    const HEAD: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";

    #[test]
    fn default_route_is_the_cheapest_with_the_mtu_of_its_link() {
        let gateway = format!("{:08X}", u32::from_ne_bytes([10, 4, 0, 1]));
        let table = format!(
            "{HEAD}wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
             eth0\t00000000\t{gateway}\t0003\t0\t0\t100\t00000000\t0\t0\t0\neth0\t000400{}\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
            "0A"
        );
        let (_folder, tree) = machine(&[("/proc/net/route", &table), ("/sys/class/net/eth0/mtu", "9000\n")]);
        let expected = RouteFacts { gateway: Some("10.4.0.1".into()), link: "eth0".into(), mtu: 9_000 };
        assert_eq!(default_route(&tree), Some(expected));
    }

    #[test]
    fn ipv6_default_route_is_found_and_a_reject_route_is_ignored() {
        let zero = "0".repeat(32);
        let line = |gateway: &str, flags: &str, link: &str| {
            format!("{zero} 00 {zero} 00 {gateway} 00000400 00000001 00000000 {flags} {link}\n")
        };
        let via = format!("fe80{}1", "0".repeat(27));
        let both = [line(&zero, "00200200", "lo"), line(&via, "00000003", "eth1")].concat();
        let (_folder, tree) = machine(&[("/proc/net/route", HEAD), ("/proc/net/ipv6_route", &both)]);
        let expected = RouteFacts { gateway: Some("fe80::1".into()), link: "eth1".into(), mtu: 0 };
        assert_eq!(default_route(&tree), Some(expected));
        let refusing = line(&zero, "00200200", "lo");
        let (_folder, none) = machine(&[("/proc/net/route", HEAD), ("/proc/net/ipv6_route", &refusing)]);
        assert_eq!(default_route(&none), None);
    }

    #[test]
    fn a_sandbox_has_no_route_of_its_machine() {
        let (_folder, bare) = machine(&[]);
        assert_eq!(default_route(&Tree::of_sandbox(bare.real_path("/"))), None);
    }
}
