//! The life of a key that signs tasks.

use crate::state::{IllegalTransition, text_enum};

text_enum! {
    /// Where a task-signing key is in its life.
    KeyState {
        /// Given to every agent, not yet used: no agent may meet a task of a key that it was not told of.
        Staged = "staged",
        /// Signs and is accepted.
        Active = "active",
        /// Signs no more, still accepted for tasks on their way.
        Grace = "grace",
        /// Not accepted any more.
        Retired = "retired",
        /// Not accepted, from one moment to the next.
        Revoked = "revoked",
    }
}

text_enum! {
    /// What happens to a key.
    KeyEvent {
        /// It begins to sign.
        Activate = "activate",
        /// Another took over.
        Supersede = "supersede",
        /// The last task that it signed has ended.
        Retire = "retire",
        /// It may have leaked.
        Revoke = "revoke",
    }
}

impl KeyState {
    /// The state after `event`, or why that event cannot happen here.
    pub fn on(self, event: KeyEvent) -> Result<Self, IllegalTransition> {
        use {KeyEvent as E, KeyState as S};
        match (self, event) {
            (S::Staged, E::Activate) => Ok(S::Active),
            (S::Active, E::Supersede) => Ok(S::Grace),
            (S::Staged | S::Grace, E::Retire) => Ok(S::Retired),
            (S::Staged | S::Active | S::Grace | S::Retired, E::Revoke) => Ok(S::Revoked),
            (S::Staged | S::Active | S::Grace | S::Retired | S::Revoked, event) => {
                Err(IllegalTransition { what: "task-signing key", state: self.as_str(), event: event.as_str() })
            }
        }
    }

    /// Whether agents take tasks that a key in this state has signed.
    ///
    /// A staged one is accepted: a task of its first moment may reach an agent before the word that it is active does.
    pub const fn is_accepted(self) -> bool {
        match self {
            Self::Staged | Self::Active | Self::Grace => true,
            Self::Retired | Self::Revoked => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_take_what_a_key_signed_from_its_staging_until_its_retirement() {
        let accepted = KeyState::ALL.iter().copied().filter(|state| state.is_accepted());
        assert_eq!(accepted.collect::<Vec<_>>(), [KeyState::Staged, KeyState::Active, KeyState::Grace]);
    }

    #[test]
    fn only_the_transitions_of_the_table_exist_and_a_revoked_key_never_comes_back() {
        let table: Vec<String> = KeyState::ALL
            .iter()
            .flat_map(|&from| KeyEvent::ALL.iter().map(move |&event| (from, event, from.on(event))))
            .filter_map(|(from, event, to)| to.ok().map(|to| format!("{from} --{event}--> {to}")))
            .collect();
        assert_eq!(
            table,
            [
                "staged --activate--> active",
                "staged --retire--> retired",
                "staged --revoke--> revoked",
                "active --supersede--> grace",
                "active --revoke--> revoked",
                "grace --retire--> retired",
                "grace --revoke--> revoked",
                "retired --revoke--> revoked",
            ]
        );
    }
}
