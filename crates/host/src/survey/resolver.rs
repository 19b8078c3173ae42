//! Name servers and search domains of a host.

use super::Tree;

/// The parts of `resolv.conf` that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Name servers, in order.
    pub name_servers: Vec<String>,
    /// Search domains, in order.
    pub search: Vec<String>,
}

/// Reads a host's `resolv.conf`; `None` if it has none.
pub fn resolver(tree: &Tree) -> Option<Resolver> {
    let text = tree.own_text("/etc/resolv.conf")?;
    let mut resolver = Resolver::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => resolver.name_servers.extend(words.next().map(str::to_owned)),
            // The last `search` or `domain` line counts.
            Some("search" | "domain") => resolver.search = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    Some(resolver)
}

#[cfg(test)]
mod tests {
    use super::{super::tree::tests::machine, *};

    #[test]
    fn all_name_servers_and_the_last_search_line_count() {
        let text = "# by hand\nnameserver 10.0.0.2\ndomain old.example\nnameserver 127.0.0.53 # stub\n\
                    search a.example b.example\noptions ndots:2\nnameserver\n";
        let (_folder, tree) = machine(&[("/etc/resolv.conf", text)]);
        let resolver = resolver(&tree).unwrap();
        assert_eq!(resolver.name_servers, ["10.0.0.2", "127.0.0.53"]);
        assert_eq!(resolver.search, ["a.example", "b.example"]);
        assert_eq!(super::resolver(&machine(&[]).1), None);
    }
}
