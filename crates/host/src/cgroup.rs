//! The unit of a process, from its cgroup: version 1, version 2, or both side by side.

/// Hierarchies in which systemd keeps its units; version 2 takes precedence.
const HIERARCHIES: &[&str] = &["0::", "name=systemd:"];
/// Name endings of cgroups that are units.
const UNITS: &[&str] = &[".service", ".scope", ".socket", ".mount", ".swap"];

/// The contents of the init's cgroup file: the init's own cgroup and its units have the same parent.
#[derive(Clone, Debug, Default)]
pub(crate) struct InitGroups(String);

impl InitGroups {
    /// Parses `/proc/1/cgroup`.
    pub(crate) fn of_init(file: &str) -> Self {
        Self(file.to_owned())
    }

    /// Returns the cgroup and the unit of a process from its `/proc/PID/cgroup`.
    pub(crate) fn locate(&self, file: &str) -> (String, Option<String>) {
        let paths = || HIERARCHIES.iter().filter_map(move |hierarchy| self.inside(hierarchy, file));
        let of_unit = paths().find_map(|path| Some((path, unit(path)?)));
        if let Some((path, unit)) = of_unit {
            return (path.to_owned(), Some(unit));
        }
        // If version 2 is mounted but not used, all processes are in its root.
        let path = paths().find(|path| *path != "/").or_else(|| paths().next()).unwrap_or_default();
        (path.to_owned(), None)
    }

    /// Returns a process's path in a hierarchy, relative to the top of the init's units.
    fn inside<'a>(&self, hierarchy: &str, file: &'a str) -> Option<&'a str> {
        let path = path_in(hierarchy, file)?;
        let init = path_in(hierarchy, &self.0).unwrap_or_default();
        let top = init.strip_suffix("/init.scope").unwrap_or(init).trim_end_matches('/');
        Some(path.strip_prefix(top).filter(|rest| rest.starts_with('/')).unwrap_or(path))
    }
}

/// Returns the path of a line such as `0::/system.slice/ssh.service` or `1:name=systemd:/init.scope`.
fn path_in<'a>(hierarchy: &str, file: &'a str) -> Option<&'a str> {
    file.lines().find_map(|line| {
        let rest = line.strip_prefix(hierarchy);
        rest.or_else(|| line.split_once(':')?.1.strip_prefix(hierarchy))
    })
}

/// Returns the outermost unit in a path. systemd prefixes a name with an underscore if it could collide with the kernel's own files.
fn unit(path: &str) -> Option<String> {
    let named = path.split('/').find(|name| UNITS.iter().any(|end| name.ends_with(end)))?;
    Some(named.strip_prefix('_').unwrap_or(named).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit_of(init: &str, file: &str) -> Option<String> {
        InitGroups::of_init(init).locate(file).1
    }

    #[test]
    fn unit_is_found_in_cgroup_v1_v2_and_hybrid() {
        let found = Some("rke2-server.service".to_owned());
        let path = "/system.slice/rke2-server.service/kubepods/pod1";
        assert_eq!(unit_of("0::/init.scope\n", &format!("0::{path}\n")), found);
        assert_eq!(unit_of("1:name=systemd:/init.scope\n", &format!("5:memory:/x\n1:name=systemd:{path}\n")), found);
        let both = format!("1:name=systemd:{path}\n0::/\n");
        assert_eq!(unit_of("1:name=systemd:/init.scope\n0::/\n", &both), found);
    }

    #[test]
    fn groups_above_a_containers_init_are_not_its_units() {
        let top = "/system.slice/machines.service/payload";
        let init = format!("1:name=systemd:{top}/init.scope\n");
        let own = format!("1:name=systemd:{top}/system.slice/ssh.service\n");
        assert_eq!(unit_of(&init, &own), Some("ssh.service".to_owned()));
        assert_eq!(InitGroups::of_init(&init).locate(&own).0, "/system.slice/ssh.service");
    }

    #[test]
    fn group_without_unit_has_none_and_escaped_name_is_unescaped() {
        assert_eq!(unit_of("0::/init.scope", "0::/kubepods/besteffort/pod1/c1"), None);
        assert_eq!(unit_of("0::/init.scope", "0::/system.slice/_cpu.service"), Some("cpu.service".to_owned()));
        assert_eq!(unit_of("", ""), None);
        let both =
            InitGroups::of_init("1:name=systemd:/init.scope\n0::/\n").locate("1:name=systemd:/kubepods/pod1\n0::/\n");
        assert_eq!(both, ("/kubepods/pod1".to_owned(), None));
    }
}
