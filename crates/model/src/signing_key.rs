//! Lifecycle of a task-signing key.

use crate::state::{IllegalTransition, text_enum};

text_enum! {
    /// Lifecycle state of a task-signing key.
    KeyState {
        /// Distributed to every agent but not used yet, so that no agent receives a task signed with an unknown key.
        Staged = "staged",
        /// Signs tasks; accepted.
        Active = "active",
        /// Signs no more tasks; still accepted for tasks in flight.
        Grace = "grace",
        /// No longer accepted.
        Retired = "retired",
        /// Revoked; not accepted from that moment on.
        Revoked = "revoked",
    }
}

text_enum! {
    /// Event that changes a [`KeyState`].
    KeyEvent {
        /// The key starts to sign.
        Activate = "activate",
        /// Another key took over.
        Supersede = "supersede",
        /// The last task that the key signed has ended.
        Retire = "retire",
        /// The key may have leaked.
        Revoke = "revoke",
    }
}

impl KeyState {
    /// Returns the state after `event`, or an error if the event is illegal in this state.
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

    /// Returns true if agents accept tasks signed with a key in this state.
    ///
    /// Agents accept staged keys, because the first task of a newly active key may arrive before the message that it is active.
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
    fn keys_are_accepted_from_staging_until_retirement() {
        let accepted = KeyState::ALL.iter().copied().filter(|state| state.is_accepted());
        assert_eq!(accepted.collect::<Vec<_>>(), [KeyState::Staged, KeyState::Active, KeyState::Grace]);
    }

    #[test]
    fn only_the_transitions_of_the_table_exist_and_revoked_is_final() {
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
