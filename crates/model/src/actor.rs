//! Actors in the audit that hold no token. Their names are reserved: no token or service account may have one.

use crate::state::text_enum;

text_enum! {
    /// An actor that is the platform's own.
    OwnActor {
        /// The control plane itself.
        ControlPlane = "control-plane",
        /// Somebody with the control plane's own files, on its machine.
        Local = "control-plane/local",
        /// Somebody who backs the control plane up or restores it, on its machine.
        Operator = "operator",
        /// The holder of the one-time token of the first administrator.
        Bootstrap = "bootstrap",
        /// Holders of several tokens, whose refusals are recorded together.
        Several = "several",
    }
}

/// What the audit writes before the name of a node.
const OF_NODE: &str = "node/";
/// Further names that read as if the platform itself acted; `_` stands as `-`.
const ALSO_RESERVED: [&str; 5] = ["local", "node", "platform", "principal", "service-account"];

impl OwnActor {
    /// How the audit names a node.
    pub fn of_node(name: impl std::fmt::Display) -> String {
        format!("{OF_NODE}{name}")
    }

    /// Whether a name, or its part before the first `/`, is one that the audit has for the platform's own actors, in whatever case.
    pub fn reserves(name: &str) -> bool {
        let first = name.split('/').next().unwrap_or_default().trim();
        let plain = first.to_ascii_lowercase().replace(['_', ' '], "-");
        Self::ALL.iter().any(|own| own.as_str() == plain) || ALSO_RESERVED.contains(&plain.as_str())
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
            assert!(OwnActor::reserves(&name), "{name}");
        }
        for name in ["ann", "control", "control-plane-2", "nodes", "ops/control-plane", "locals", "developer", ""] {
            assert!(!OwnActor::reserves(name), "{name}");
        }
    }
}
