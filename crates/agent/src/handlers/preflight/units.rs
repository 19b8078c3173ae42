//! Checks for local changes to the app's own units.

use std::net::IpAddr;

use gpuaas_model::Check;
use gpuaas_wire::task::Finding;

use super::{
    HostSnapshot,
    report::{Report, blocking, listed, warning, with_evidence},
};

/// Folders whose units take precedence over those of a release.
const FOLDERS: [&str; 2] = ["/etc/systemd/system", "/run/systemd/system"];
/// Folders of the environment files that a release's units read.
const ENVIRONMENTS: [&str; 2] = ["/etc/default", "/etc/sysconfig"];

pub(super) fn check(snapshot: &HostSnapshot<'_>, report: &mut Report) {
    if snapshot.wants.units.is_empty() {
        return;
    }
    report.record(
        Check::UnitMasked,
        snapshot
            .wants
            .units
            .iter()
            .flat_map(|unit| FOLDERS.iter().filter_map(move |folder| masked(snapshot, folder, unit))),
    );
    report.record(Check::UnitOverridden, overridden(snapshot));
    if !snapshot.wants.reserved_variables.is_empty() {
        report.record(Check::SettingsOverridden, settings(snapshot));
    }
    report.record(
        Check::ProxyIncomplete,
        environments(snapshot).into_iter().filter_map(|(path, text)| proxy(snapshot, &path, &text)),
    );
}

/// Finds a unit that is masked by a link to `/dev/null` or an empty file, or replaced by a file of the same name.
fn masked(snapshot: &HostSnapshot<'_>, folder: &str, unit: &str) -> Option<Finding> {
    let path = format!("{folder}/{unit}");
    match snapshot.tree.link(&path) {
        Some(target) if target == "/dev/null" => {
            let finding = blocking(Check::UnitMasked, format!("{unit} is masked"), format!("systemctl unmask {unit}"));
            return Some(with_evidence(finding, format!("{path} -> /dev/null")));
        }
        // The link of an enabled or linked unit leads to the unit itself.
        Some(_) => return None,
        None => {}
    }
    let text = snapshot.tree.own_text(&path)?;
    let how = if text.trim().is_empty() {
        "masked by an empty file"
    } else {
        "replaced by a file that overrides the one of the release"
    };
    let finding = blocking(
        Check::UnitMasked,
        format!("{unit} is {how}"),
        format!("remove {path} and run systemctl daemon-reload"),
    );
    Some(with_evidence(finding, format!("{path}, {} bytes", text.len())))
}

/// Returns the paths of the units' drop-ins.
fn drop_ins(snapshot: &HostSnapshot<'_>) -> Vec<String> {
    let mut files = Vec::new();
    for unit in &snapshot.wants.units {
        for folder in FOLDERS {
            let folder = format!("{folder}/{unit}.d");
            let names = snapshot.tree.own_names(&folder).into_iter().filter(|name| name.ends_with(".conf"));
            files.extend(names.map(|name| format!("{folder}/{name}")));
        }
    }
    files
}

fn overridden(snapshot: &HostSnapshot<'_>) -> Vec<Finding> {
    let mut files = drop_ins(snapshot);
    files.extend(environments(snapshot).into_iter().map(|(path, _)| path));
    if files.is_empty() {
        return Vec::new();
    }
    let detail = format!("files that override the units of {} exist: {}", snapshot.who(), listed(&files));
    vec![warning(
        Check::UnitOverridden,
        detail,
        "check that they are intended, or remove them; an uninstall does not remove them",
    )]
}

/// Returns the existing environment files with their content.
fn environments(snapshot: &HostSnapshot<'_>) -> Vec<(String, String)> {
    let names = snapshot.wants.units.iter().map(|unit| unit.trim_end_matches(".service"));
    let paths = names.flat_map(|name| ENVIRONMENTS.map(|folder| format!("{folder}/{name}")));
    paths.filter_map(|path| snapshot.tree.own_text(&path).map(|text| (path, text))).collect()
}

/// Finds environment files and drop-ins that set reserved variables. The values stay out of the report, because some are secret.
fn settings(snapshot: &HostSnapshot<'_>) -> Vec<Finding> {
    let of_files = environments(snapshot).into_iter().map(|(path, text)| (path, of_environment_file(&text)));
    let of_drop_ins = drop_ins(snapshot).into_iter().filter_map(|path| {
        let names = of_drop_in(&snapshot.tree.own_text(&path)?);
        Some((path, names))
    });
    let found = of_files.chain(of_drop_ins).filter_map(|(path, names)| {
        let set: Vec<String> =
            snapshot.wants.reserved_variables.iter().filter(|name| names.contains(name)).cloned().collect();
        let detail =
            format!("{path} sets {}, which overrides a setting of the platform for {}", listed(&set), snapshot.who());
        let fix = format!("remove {} from {path}", listed(&set));
        (!set.is_empty()).then(|| blocking(Check::SettingsOverridden, detail, fix))
    });
    found.collect()
}

/// Returns the keys and values of a file with systemd's syntax: a backslash at the end of a line continues it, `#` and `;` begin comments.
fn assignments(text: &str) -> Vec<(String, String)> {
    let text = text.replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.trim_end().to_owned(), value.trim_start().to_owned())).collect()
}

/// Returns the names of the variables that an environment file sets, one per line.
fn of_environment_file(text: &str) -> Vec<String> {
    assignments(text).into_iter().map(|(name, _)| name).collect()
}

/// Returns the names of the variables that a drop-in sets with `Environment=`, several per line. Quotes also separate words: the result may
/// contain names from inside another variable's value, but misses none.
fn of_drop_in(text: &str) -> Vec<String> {
    let values = assignments(text).into_iter().filter(|(key, _)| key == "Environment").map(|(_, value)| value);
    let names = |value: String| {
        let words = value.split([' ', '\t', '"', '\'']).filter_map(|word| word.split_once('='));
        words.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    values.flat_map(names).collect()
}

/// Finds a proxy through which the cluster's nodes would connect to each other.
fn proxy(snapshot: &HostSnapshot<'_>, path: &str, text: &str) -> Option<Finding> {
    let value = |wanted: &str| {
        let lines = text.lines().filter_map(|line| line.trim().trim_start_matches("export ").split_once('='));
        let mut of_name =
            lines.filter(|(name, _)| name.trim().trim_start_matches("CONTAINERD_").eq_ignore_ascii_case(wanted));
        of_name.next_back().map(|(_, value)| value.trim().trim_matches(['"', '\'']).to_owned())
    };
    let set =
        ["HTTPS_PROXY", "HTTP_PROXY"].into_iter().find(|name| value(name).is_some_and(|value| !value.is_empty()))?;
    let exempt = value("NO_PROXY").unwrap_or_default();
    let address: IpAddr = snapshot.facts.addresses.first()?.parse().ok()?;
    if exempt.split(',').any(|entry| covers(entry.trim(), address)) {
        return None;
    }
    let detail = format!("{path} sets {set}, but NO_PROXY does not include this node's address {address}");
    let fix = "add the nodes' addresses and the cluster's ranges to NO_PROXY";
    Some(with_evidence(warning(Check::ProxyIncomplete, detail, fix), format!("NO_PROXY={exempt}")))
}

/// Returns true if an entry of `NO_PROXY` covers the address, literally or by its network.
fn covers(entry: &str, address: IpAddr) -> bool {
    let Some((network, bits)) = entry.split_once('/') else { return entry.parse() == Ok(address) };
    let bits_of = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    match (network.parse::<IpAddr>(), bits.parse::<u32>()) {
        (Ok(network), Ok(bits)) if network.is_ipv4() == address.is_ipv4() => {
            let ((network, most), (address, _)) = (bits_of(network), bits_of(address));
            let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
            bits <= most && network & mask == address & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_entry_matches_an_address_or_its_network() {
        let address: IpAddr = "10.4.0.7".parse().unwrap();
        for (entry, names) in [
            ("10.4.0.7", true),
            ("10.4.0.0/16", true),
            ("0.0.0.0/0", true),
            ("10.4.0.7/32", true),
            ("10.5.0.0/16", false),
            ("10.4.0.0/33", false),
            ("fd00::/8", false),
            ("example.com", false),
            ("", false),
        ] {
            assert_eq!(covers(entry, address), names, "{entry}");
        }
        assert!(covers("fd00::/8", "fd00::7".parse().unwrap()) && !covers("fd00::/64", "fe80::7".parse().unwrap()));
    }
}
