//! Audit actors that hold no token. Their names are reserved: no token or service account may use one.

use crate::state::text_enum;

text_enum! {
    /// An actor of the platform itself.
    OwnActor {
        /// The control plane itself.
        ControlPlane = "control-plane",
        /// A person with access to the control plane's files on its machine.
        Local = "control-plane/local",
        /// A person who backs up or restores the control plane on its machine.
        Operator = "operator",
        /// The holder of the one-time token of the first administrator.
        Bootstrap = "bootstrap",
        /// Holders of several tokens whose refused requests share one record.
        Several = "several",
    }
}

/// Prefix of a node's name in the audit.
const NODE_PREFIX: &str = "node/";
/// More reserved names, because they read like platform actors; `-` also stands for `_`.
const OTHER_RESERVED: [&str; 5] = ["local", "node", "platform", "principal", "service-account"];

impl OwnActor {
    /// Returns the audit's name of a node.
    pub fn of_node(name: impl std::fmt::Display) -> String {
        format!("{NODE_PREFIX}{name}")
    }

    /// Returns true if `name`, or its part before the first `/`, is reserved for a platform actor; ignores case.
    pub fn is_reserved(name: &str) -> bool {
        let first = name.split('/').next().unwrap_or_default().trim();
        let plain = first.to_ascii_lowercase().replace(['_', ' '], "-");
        Self::ALL.iter().any(|own| own.as_str() == plain) || OTHER_RESERVED.contains(&plain.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_platforms_own_actors_are_reserved_in_every_spelling() {
        let own = OwnActor::ALL.iter().map(|own| own.as_str().to_owned());
        let spelled =
            ["Control-Plane", "control_plane", "control plane", "CONTROL-PLANE/x", "local", "node/gpu-07", "principal"];
        for name in own.chain([OwnActor::of_node("gpu-07")]).chain(spelled.map(str::to_owned)) {
            assert!(OwnActor::is_reserved(&name), "{name}");
        }
        for name in ["ann", "control", "control-plane-2", "nodes", "ops/control-plane", "locals", "developer", ""] {
            assert!(!OwnActor::is_reserved(name), "{name}");
        }
    }
}
