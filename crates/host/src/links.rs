//! Network links, from the kernel's own table.

use std::fs;

use camino::Utf8Path;

use crate::error::HostError;

/// Returns the sorted names of all links.
pub(crate) fn links() -> Result<Vec<String>, HostError> {
    let path = Utf8Path::new("/proc/net/dev");
    let table = fs::read_to_string(path).map_err(HostError::file("read", path))?;
    Ok(names(&table))
}

fn names(table: &str) -> Vec<String> {
    let mut names: Vec<String> =
        table.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_are_parsed() {
        let table = "Inter-|   Receive |  Transmit\n face |bytes packets|bytes\n    lo: 72 1 0\nflannel.1:1 2 3\n  eth0: 9 9 9\n";
        assert_eq!(names(table), ["eth0", "flannel.1", "lo"]);
    }

    #[test]
    fn every_machine_has_a_loopback() {
        assert!(links().unwrap().contains(&"lo".to_owned()));
    }
}
