//! Names of objects, which become parts of paths and of texts.

use std::fmt;

/// Longest name of an object, a DNS subdomain, in bytes.
const NAME_BYTES_MAX: usize = 253;

/// The name of an object with its namespace, for example `web/api-7f9c`. Both are DNS subdomains, so they are safe in a path and in a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// The namespace.
    pub namespace: String,
    /// The name within the namespace.
    pub name: String,
}

impl ObjectName {
    /// Returns the name; `None` if a part is no DNS subdomain.
    pub(crate) fn new(namespace: &str, name: &str) -> Option<Self> {
        let is_valid = is_object_name(namespace) && is_object_name(name);
        is_valid.then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Returns true for a DNS subdomain, the form of the names of pods, KubeNodes and most other objects.
pub(crate) fn is_object_name(name: &str) -> bool {
    let may = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(may) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_leave_its_path_or_its_line_is_refused() {
        for bad in ["", "a/b", "..", "../x", "A", "a?b", "a%2f", "a\nb", "a\u{1b}", &"a".repeat(254)] {
            assert!(!is_object_name(bad), "{bad:?}");
            assert!(ObjectName::new("web", bad).is_none() && ObjectName::new(bad, "api").is_none(), "{bad:?}");
        }
        assert_eq!(ObjectName::new("web", "api-7f9c.example").unwrap().to_string(), "web/api-7f9c.example");
    }
}
