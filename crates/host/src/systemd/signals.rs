//! systemd's signals, in the order of their arrival.
//!
//! Guarantees: signals of any other sender are dropped, because any peer on the bus may send any signal; signals never block the answer to
//! a call, although both arrive on one connection.

use std::{collections::VecDeque, num::NonZeroUsize};

use futures::FutureExt;
use ordered_stream::{JoinMultiple, OrderedStreamExt, Peekable};
use zbus::{
    DeserializeDict, MatchRule, Message, MessageStream, OwnedObjectPath,
    message::{Sequence, Type},
    names::UniqueName,
};

use super::bus::{SYSTEMD, Systemd, bus_error, is_systemd_error};
use crate::error::HostError;

/// Most signals of one kind that are buffered. systemd sends at most a hundred before it does anything else.
const QUEUE_MAX: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not zero");
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const BUS: &str = "org.freedesktop.DBus";

/// Signals to subscribe to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subscription<'a> {
    /// Changes of a unit's properties.
    Unit(&'a str),
    /// The unloading of a unit; systemd unloads any unit that is at rest.
    Unloads(&'a str),
    /// The ends of a unit's jobs.
    Jobs(&'a str),
    /// Reloads of the unit files.
    Reloads,
    /// Re-executions of systemd, which change its unique name on the bus.
    Owner,
}

/// Properties that make up a status; a signal carries those of one interface.
#[derive(Clone, Debug, Default, DeserializeDict, zbus::Type)]
#[zbus(signature = "a{sv}", rename_all = "PascalCase")]
pub(super) struct Properties {
    pub(super) load_state: Option<String>,
    pub(super) active_state: Option<String>,
    pub(super) sub_state: Option<String>,
    pub(super) state_change_timestamp: Option<u64>,
    pub(super) job: Option<(u32, OwnedObjectPath)>,
    pub(super) result: Option<String>,
    #[zbus(rename = "NRestarts")]
    pub(super) n_restarts: Option<u32>,
    pub(super) exec_main_status: Option<i32>,
    #[zbus(rename = "MainPID")]
    pub(super) main_pid: Option<u32>,
    pub(super) exec_main_start_timestamp: Option<u64>,
}

/// A received signal.
#[derive(Debug)]
pub(super) enum Signal {
    /// Properties of one of a unit's interfaces changed. The interface that all kinds of units share comes last: with `complete`, all
    /// properties are of one moment.
    Changed { properties: Box<Properties>, complete: bool },
    /// A unit was unloaded.
    Unloaded,
    /// A job ended.
    JobEnded { job: OwnedObjectPath, result: String },
    /// The unit files were reloaded.
    Reloaded,
    /// systemd was executed again and has a new unique name on the bus.
    Reexecuted,
}

/// A subscription to signals.
pub(super) struct Signals {
    joined: JoinMultiple<Vec<Peekable<MessageStream>>>,
    queued: VecDeque<(Sequence, Signal)>,
}

impl Signals {
    /// Subscribes to these signals.
    pub(super) async fn subscribe(systemd: &Systemd, subscriptions: &[Subscription<'_>]) -> Result<Self, HostError> {
        match systemd.manager.subscribe().await {
            Err(error) if !is_systemd_error(&error, ".AlreadySubscribed") => return Err(bus_error(error)),
            _ => {}
        }
        let owner = systemd.owner().await?;
        let mut streams = Vec::new();
        for subscription in subscriptions {
            let rule = subscription.rule(&owner).map_err(bus_error)?;
            let stream = MessageStream::for_match_rule(rule, &systemd.connection, Some(QUEUE_MAX)).await;
            streams.push(stream.map_err(bus_error)?.peekable());
        }
        Ok(Self { joined: JoinMultiple(streams), queued: VecDeque::new() })
    }

    /// Returns the next signal; `None` if the bus connection is lost.
    pub(super) async fn next(&mut self) -> Option<Signal> {
        loop {
            if let Some((_, signal)) = self.queued.pop_front() {
                return Some(signal);
            }
            let message = self.joined.next().await?.ok()?;
            self.queue(&message);
        }
    }

    /// Awaits a call and buffers the signals that arrive before its answer: left on the connection, they would block the answer.
    pub(super) async fn queue_during<T>(&mut self, call: impl Future<Output = T>) -> T {
        tokio::pin!(call);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut call => break answer,
                Some(Ok(message)) = self.joined.next() => self.queue(&message),
            }
        };
        while let Some(Some(Ok(message))) = self.joined.next().now_or_never() {
            self.queue(&message);
        }
        answer
    }

    /// Returns true if a signal is buffered.
    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Drops buffered signals that are older than `moment`, the position of an answer that is newer than them.
    pub(super) fn drop_before(&mut self, moment: Sequence) {
        self.queued.retain(|(at, _)| *at > moment);
    }

    fn queue(&mut self, message: &Message) {
        match read(message) {
            Ok(signal) => self.queued.extend(signal.map(|signal| (message.recv_position(), signal))),
            Err(error) => tracing::warn!(%error, ?message, "a D-Bus signal cannot be decoded"),
        }
    }
}

impl Subscription<'_> {
    fn rule(self, owner: &UniqueName<'_>) -> zbus::Result<MatchRule<'static>> {
        let rule = MatchRule::builder().msg_type(Type::Signal);
        let of_systemd = |interface: &'static str, member: &'static str| {
            MatchRule::builder().msg_type(Type::Signal).sender(owner.to_owned()).interface(interface).member(member)
        };
        let rule = match self {
            Self::Unit(unit) => of_systemd(PROPERTIES, "PropertiesChanged").path(path_of(unit)),
            Self::Unloads(unit) => of_systemd(MANAGER, "UnitRemoved").arg(0, unit.to_owned()),
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
        "UnitRemoved" => Signal::Unloaded,
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

/// Returns a unit's path on the bus, loaded or not: every byte but letters, and digits after the first byte, becomes `_` and its hex code.
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
    fn unit_path_is_escaped_like_systemd() {
        // As `busctl tree org.freedesktop.systemd1` prints them.
        for (unit, path) in [
            ("rke2-server.service", "rke2_2dserver_2eservice"),
            ("user@1000.service", "user_401000_2eservice"),
            ("9p.mount", "_39p_2emount"),
        ] {
            assert_eq!(path_of(unit), format!("/org/freedesktop/systemd1/unit/{path}"));
        }
    }

    #[test]
    fn match_rule_accepts_only_systemd() {
        let owner = UniqueName::try_from(":1.3").unwrap();
        let rule = Subscription::Jobs("a.service").rule(&owner).unwrap().to_string();
        assert!(rule.contains("sender=':1.3'") && rule.contains("arg2='a.service'"), "{rule}");
        let rule = Subscription::Owner.rule(&owner).unwrap().to_string();
        assert!(
            rule.contains("sender='org.freedesktop.DBus'") && rule.contains("arg0='org.freedesktop.systemd1'"),
            "{rule}"
        );
    }
}
