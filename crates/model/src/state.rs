//! What the lifecycles have in common.

/// An event arrived in a state in which it cannot happen. Whoever sees one has found a defect or a stale writer; the state stays as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} in state {state} cannot take {event}")]
pub struct IllegalTransition {
    /// The kind of object, for example `member`.
    pub what: &'static str,
    /// The state it is in.
    pub state: &'static str,
    /// The event that does not fit.
    pub event: &'static str,
}

/// A fieldless enum whose variants are written in snake case everywhere: in the store, in JSON and on screens.
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant),*
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The one spelling of this value.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            /// Fails with a sentence that lists what would have been understood.
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    other => Err(format!("{other:?} is none of {}", [$($text),*].join(", "))),
                }
            }
        }
    };
}
pub(crate) use text_enum;
