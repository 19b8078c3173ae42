//! Prints lists, and with `--watch` every later change of them.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use gpuaas_client::{Client, ClientError};
use serde::Serialize;
use serde_json::Value;

use super::following::{EventFollower, Next};
use crate::{
    output,
    table::{Column, Layout},
    target::{Format, Target},
};

/// Pause between an event and the reading of the list, in which further events are collected: most changes cause several.
const COLLECT_EVENTS: Duration = Duration::from_millis(250);

/// `--watch` of a list.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Watch {
    /// After the list, print each entry that changes until Ctrl-C; with -o json one object per line
    #[arg(short, long)]
    watch: bool,
}

/// How a list of `T` is printed and followed.
pub(super) struct Listing<T: 'static> {
    pub(super) columns: &'static [Column<T>],
    /// The text that `-o name` prints.
    pub(super) name: fn(&T) -> &str,
    /// Returns true while the object exists or has not ended. Without a filter, `-o name` lists only such objects.
    pub(super) is_live: fn(&T) -> bool,
    /// Beginnings of the kinds of events after which the list may have changed.
    pub(super) events: &'static [&'static str],
    /// The stream with these events.
    pub(super) stream: EventStream,
    /// Fields that differ with every reading, or too often, and are no change.
    pub(super) volatile: &'static [&'static str],
}

/// Streams of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventStream {
    Platform,
    Project,
}

impl Watch {
    pub(super) const fn is_set(self) -> bool {
        self.watch
    }
}

impl<T: Serialize> Listing<T> {
    /// Prints the list; `is_filtered` if the caller selected entries by their state. With `--watch`, follows it.
    pub(super) async fn print(
        &self,
        client: &Client,
        target: &Target,
        watch: Watch,
        is_filtered: bool,
        read: impl AsyncFn() -> Result<Vec<T>, ClientError>,
    ) -> anyhow::Result<()> {
        let names_only = target.output == Format::Name && !is_filtered;
        let read = async || {
            let items = read().await?;
            Ok::<_, ClientError>(
                items.into_iter().filter(|item| !names_only || (self.is_live)(item)).collect::<Vec<T>>(),
            )
        };
        if watch.watch {
            return self.watch(client, target, read).await;
        }
        output::list(target.output, &read().await?, self.columns, |item| (self.name)(item).to_owned())
    }

    async fn watch(
        &self,
        client: &Client,
        target: &Target,
        read: impl AsyncFn() -> Result<Vec<T>, ClientError>,
    ) -> anyhow::Result<()> {
        // Subscribed before the list is read, so that no change is missed in between.
        let mut events = EventFollower::start(client, self.project(client, target).await?, None).await?;
        let mut known: BTreeMap<String, Value> = BTreeMap::new();
        let mut layout = None;
        loop {
            let items = match read().await {
                Ok(items) => items,
                // The stream breaks, too, and waits until the control plane is back.
                Err(ClientError::Interrupted(_) | ClientError::Unreachable { .. }) if layout.is_some() => {
                    self.next_change(&mut events).await?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if layout.is_none() && target.output.is_for_people() {
                output::line(self.layout(target, &items).header())?;
            }
            let layout = layout.get_or_insert_with(|| self.layout(target, &items));
            let mut now = BTreeMap::new();
            for item in &items {
                let mut value = serde_json::to_value(item)?;
                if let Some(fields) = value.as_object_mut() {
                    self.volatile.iter().for_each(|volatile| drop(fields.remove(*volatile)));
                }
                // Several decommissioned workloads can have the same name.
                let key = value["id"].as_str().unwrap_or((self.name)(item)).to_owned();
                if known.get(&key) != Some(&value) {
                    self.print_change(target.output, layout, item)?;
                }
                now.insert(key, value);
            }
            known = now;
            self.next_change(&mut events).await?;
        }
    }

    fn layout(&self, target: &Target, items: &[T]) -> Layout {
        Layout::of(self.columns, items, target.output == Format::Wide, true).0
    }

    fn print_change(&self, format: Format, layout: &Layout, item: &T) -> anyhow::Result<()> {
        match format {
            Format::Table | Format::Wide => output::line(layout.row(&layout.cells(self.columns, item))),
            Format::Name => output::line((self.name)(item)),
            Format::Json | Format::Yaml | Format::JsonPath(_) => output::record(format, item),
        }
    }

    async fn next_change(&self, events: &mut EventFollower<'_>) -> Result<(), ClientError> {
        loop {
            match events.next().await? {
                Next::Event(event) if !self.events.iter().any(|kind| event.kind.starts_with(kind)) => {}
                Next::Event(_) | Next::Reconnected => break,
            }
        }
        let collected = tokio::time::sleep(COLLECT_EVENTS);
        tokio::pin!(collected);
        loop {
            tokio::select! {
                () = &mut collected => return Ok(()),
                event = events.next() => { event?; }
            }
        }
    }

    /// Returns the project whose stream has the events; `None` for the stream of the token's scope.
    async fn project(&self, client: &Client, target: &Target) -> Result<Option<String>, ClientError> {
        if self.stream == EventStream::Platform {
            return Ok(None);
        }
        if target.project.is_none() && client.whoami().await?.project.is_none() {
            let refused = "--watch follows the events of one project: add --project NAME";
            return Err(ClientError::InvalidSetting(refused.to_owned()));
        }
        Ok(target.project.clone())
    }
}
