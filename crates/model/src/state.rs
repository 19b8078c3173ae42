//! Shared parts of the lifecycles.

/// An event is illegal in the current state, which stays unchanged. The cause is a defect or a stale writer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} in state {state} does not accept the event {event}")]
pub struct IllegalTransition {
    /// The kind of object, for example `member`.
    pub what: &'static str,
    /// The current state.
    pub state: &'static str,
    /// The illegal event.
    pub event: &'static str,
}

/// Defines a fieldless enum with one snake-case spelling for the store, JSON and display.
///
/// A variant that was renamed lists its former spellings after `|`. They are read, so that rows and peers of an earlier version stay valid, and never written.
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal $(| $former:literal)*),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text $(, alias = $former)*)] $variant),*
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the spelling of this value.
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

            /// Fails with a sentence that lists the accepted values.
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text $(| $former)* => Ok(Self::$variant),)*
                    other => Err(format!("{other:?} is not one of {}", [$($text),*].join(", "))),
                }
            }
        }
    };
}
pub(crate) use text_enum;
