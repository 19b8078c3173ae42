//! Signals of systemd's, in the order in which they came.
//!
//! Guarantees: only what systemd itself sent is told, for anybody on the bus may send a signal to anybody; signals never hold up the
//! answer to a call, though both come on one connection.

use std::{collections::VecDeque, num::NonZeroUsize};

use futures::FutureExt;
use ordered_stream::{JoinMultiple, OrderedStreamExt, Peekable};
use zbus::{
    MatchRule, Message, MessageStream, OwnedObjectPath,
    message::{Sequence, Type},
    names::UniqueName,
};

use super::{
    bus::{SYSTEMD, Systemd, gone, is},
    known::Properties,
};
use crate::error::HostError;

/// Signals of one kind held while nobody takes them. systemd sends a hundred at most before it looks at anything else.
const HELD_MAX: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not zero");
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const BUS: &str = "org.freedesktop.DBus";

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum About<'a> {
    /// A unit's properties.
    Unit(&'a str),
    /// That systemd forgets a unit, which it does with any that is at rest.
    Forgetting(&'a str),
    /// The ends of a unit's jobs.
    Jobs(&'a str),
    /// That unit files are read anew.
    Reloads,
    /// That systemd was executed anew, and is another on the bus.
    Owner,
}

/// What is told.
#[derive(Debug)]
pub(super) enum Signal {
    /// Properties of one of a unit's interfaces changed. Those common to all kinds of units come last: with `complete` they are of one moment.
    Changed { properties: Box<Properties>, complete: bool },
    /// A unit is loaded no more.
    Forgotten,
    /// A job ended.
    JobEnded { job: OwnedObjectPath, result: String },
    /// Unit files were read anew.
    Reloaded,
    /// systemd is another on the bus now.
    Reexecuted,
}

/// Signals that were asked for.
pub(super) struct Signals {
    joined: JoinMultiple<Vec<Peekable<MessageStream>>>,
    held: VecDeque<(Sequence, Signal)>,
}

impl Signals {
    /// Signals about these from now on.
    pub(super) async fn about(systemd: &Systemd, abouts: &[About<'_>]) -> Result<Self, HostError> {
        match systemd.manager.subscribe().await {
            Err(error) if !is(&error, ".AlreadySubscribed") => return Err(gone(error)),
            _ => {}
        }
        let owner = systemd.owner().await?;
        let mut streams = Vec::new();
        for about in abouts {
            let rule = about.rule(&owner).map_err(gone)?;
            let stream = MessageStream::for_match_rule(rule, &systemd.connection, Some(HELD_MAX)).await;
            streams.push(stream.map_err(gone)?.peekable());
        }
        Ok(Self { joined: JoinMultiple(streams), held: VecDeque::new() })
    }

    /// The next signal; `None` when the bus is gone.
    pub(super) async fn next(&mut self) -> Option<Signal> {
        loop {
            if let Some((_, signal)) = self.held.pop_front() {
                return Some(signal);
            }
            let message = self.joined.next().await?.ok()?;
            self.hold(&message);
        }
    }

    /// Awaits a call and holds the signals that came before its answer: left on the connection, they would keep it from being read.
    pub(super) async fn meanwhile<T>(&mut self, call: impl Future<Output = T>) -> T {
        tokio::pin!(call);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut call => break answer,
                Some(Ok(message)) = self.joined.next() => self.hold(&message),
            }
        };
        while let Some(Some(Ok(message))) = self.joined.next().now_or_never() {
            self.hold(&message);
        }
        answer
    }

    /// Whether a signal is there already.
    pub(super) fn are_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Drops held signals from before that moment: an answer of that moment knows better.
    pub(super) fn drop_before(&mut self, moment: Sequence) {
        self.held.retain(|(at, _)| *at > moment);
    }

    fn hold(&mut self, message: &Message) {
        match read(message) {
            Ok(signal) => self.held.extend(signal.map(|signal| (message.recv_position(), signal))),
            Err(error) => tracing::warn!(%error, ?message, "a signal is not understood"),
        }
    }
}

impl About<'_> {
    fn rule(self, owner: &UniqueName<'_>) -> zbus::Result<MatchRule<'static>> {
        let rule = MatchRule::builder().msg_type(Type::Signal);
        let of_systemd = |interface: &'static str, member: &'static str| {
            MatchRule::builder().msg_type(Type::Signal).sender(owner.to_owned()).interface(interface).member(member)
        };
        let rule = match self {
            Self::Unit(unit) => of_systemd(PROPERTIES, "PropertiesChanged").path(path_of(unit)),
            Self::Forgetting(unit) => of_systemd(MANAGER, "UnitRemoved").arg(0, unit.to_owned()),
            Self::Jobs(unit) => of_systemd(MANAGER, "JobRemoved").arg(2, unit.to_owned()),
            Self::Reloads => of_systemd(MANAGER, "Reloading"),
            Self::Owner => rule.sender(BUS).interface(BUS).member("NameOwnerChanged").arg(0, SYSTEMD),
        };
        rule.build().map(|rule| rule.to_owned())
    }
}

fn read(message: &Message) -> zbus::Result<Option<Signal>> {
    let header = message.header();
    let body = message.body();
    let signal = match header.member().map_or("", |member| member.as_str()) {
        "PropertiesChanged" => {
            let (interface, properties, _): (&str, Properties, Vec<&str>) = body.deserialize()?;
            Signal::Changed { properties: Box::new(properties), complete: interface == UNIT }
        }
        "UnitRemoved" => Signal::Forgotten,
        "JobRemoved" => {
            let (_, job, _, result): (u32, OwnedObjectPath, &str, String) = body.deserialize()?;
            Signal::JobEnded { job, result }
        }
        "Reloading" if !body.deserialize::<bool>()? => Signal::Reloaded,
        "NameOwnerChanged" => {
            let (_, _, owner): (&str, &str, &str) = body.deserialize()?;
            if owner.is_empty() {
                return Ok(None);
            }
            Signal::Reexecuted
        }
        _ => return Ok(None),
    };
    Ok(Some(signal))
}

/// A unit's path on the bus, loaded or not: whatever is no letter, and no digit behind the first, is `_` with its code.
fn path_of(unit: &str) -> String {
    let mut path = "/org/freedesktop/systemd1/unit/".to_owned();
    for (at, byte) in unit.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_units_path_is_the_one_that_systemd_gives_it() {
        // As `busctl tree org.freedesktop.systemd1` shows them.
        for (unit, path) in [
            ("rke2-server.service", "rke2_2dserver_2eservice"),
            ("user@1000.service", "user_401000_2eservice"),
            ("9p.mount", "_39p_2emount"),
        ] {
            assert_eq!(path_of(unit), format!("/org/freedesktop/systemd1/unit/{path}"));
        }
    }

    #[test]
    fn a_rule_believes_systemd_alone() {
        let owner = UniqueName::try_from(":1.3").unwrap();
        let rule = About::Jobs("a.service").rule(&owner).unwrap().to_string();
        assert!(rule.contains("sender=':1.3'") && rule.contains("arg2='a.service'"), "{rule}");
        let rule = About::Owner.rule(&owner).unwrap().to_string();
        assert!(
            rule.contains("sender='org.freedesktop.DBus'") && rule.contains("arg0='org.freedesktop.systemd1'"),
            "{rule}"
        );
    }
}
