//! Follows streams across broken connections; events continue after the last received one.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use gpuaas_api_types::Event;
use gpuaas_client::{Client, ClientError};

/// Pause before the first reconnection attempt; doubled for each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// Reconnection attempts before giving up: with their pauses about 100 s, longer than a restart of the control plane takes.
const ATTEMPTS_MAX: u32 = 9;

/// A stream of events that reconnects. The streams are fused, so that a caller may drop [`EventFollower::next`] while it reconnects.
pub(super) struct EventFollower<'a> {
    client: &'a Client,
    project: Option<String>,
    last_received: Option<u64>,
    stream: BoxStream<'static, Result<Event, ClientError>>,
}

/// The next item of the stream.
pub(super) enum Next {
    /// An event.
    Event(Box<Event>),
    /// The connection was replaced. Without a last received event, events may have been missed: read the state again.
    Reconnected,
}

impl<'a> EventFollower<'a> {
    /// Follows the events after event number `after`, or only new events if absent.
    pub(super) async fn start(
        client: &'a Client,
        project: Option<String>,
        after: Option<u64>,
    ) -> Result<Self, ClientError> {
        let stream = open_stream(client, project.clone(), after).await?;
        Ok(Self { client, project, last_received: after, stream })
    }

    /// Returns the next event. Fails if the control plane stays unreachable.
    pub(super) async fn next(&mut self) -> Result<Next, ClientError> {
        match self.stream.next().await {
            Some(Ok(event)) => {
                self.last_received = Some(event.sequence);
                Ok(Next::Event(Box::new(event)))
            }
            Some(Err(ClientError::Interrupted(_) | ClientError::Unreachable { .. })) | None => {
                self.reconnect().await?;
                Ok(Next::Reconnected)
            }
            Some(Err(error)) => Err(error),
        }
    }

    async fn reconnect(&mut self) -> Result<(), ClientError> {
        self.stream =
            reopened(async || open_stream(self.client, self.project.clone(), self.last_received).await).await?;
        Ok(())
    }
}

/// Opens a stream again, until the control plane answers. Fails if it stays unreachable, or refuses.
pub(super) async fn reopened<T>(mut open: impl AsyncFnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let mut tries = 0;
    loop {
        tokio::time::sleep(PAUSE_FIRST * 2_u32.pow(tries)).await;
        match open().await {
            Err(ClientError::Unreachable { .. }) if tries + 1 < ATTEMPTS_MAX => tries += 1,
            ended => return ended,
        }
    }
}

async fn open_stream(
    client: &Client,
    project: Option<String>,
    after: Option<u64>,
) -> Result<BoxStream<'static, Result<Event, ClientError>>, ClientError> {
    Ok(match after {
        Some(after) => client.follow_events(project, after).await?.fuse().boxed(),
        None => client.follow_new_events(project).await?.fuse().boxed(),
    })
}
