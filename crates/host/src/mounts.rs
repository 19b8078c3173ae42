//! Mounts, from the kernel's own table.

use std::fs;

use camino::Utf8Path;

use crate::error::HostError;

/// Returns the mount points in a process's mount namespace. Process 1 has the init's, from which a service can have its own.
pub(crate) fn mount_points(process: &str) -> Result<Vec<String>, HostError> {
    let path = format!("/proc/{process}/mountinfo");
    let table = fs::read_to_string(&path).map_err(HostError::file("read", Utf8Path::new(&path)))?;
    Ok(table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped).collect())
}

/// Decodes a field: the kernel writes blanks, tabs, newlines and backslashes as `\` and three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let byte = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_point_is_unescaped() {
        assert_eq!(unescaped(r"/mnt/a\040b\134c\011"), "/mnt/a b\\c\t");
        assert_eq!(unescaped(r"/mnt/end\04"), r"/mnt/end\04");
    }

    #[test]
    fn the_root_and_proc_are_mounted() {
        let found = mount_points("self").unwrap();
        assert!(found.iter().any(|mount| mount == "/") && found.iter().any(|mount| mount == "/proc"), "{found:?}");
    }
}
