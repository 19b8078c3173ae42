//! Following events past broken connections: goes on behind the last one seen.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use gpuaas_api_types::Event;
use gpuaas_client::{Client, ClientError};

/// Pause before the first try to connect again; doubled for each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// Tries to connect again before giving up: with their pauses about a minute, longer than a control plane takes to restart.
const TRIES_MAX: u32 = 9;

/// Events as they happen.
pub(super) struct Following<'a> {
    client: &'a Client,
    project: Option<String>,
    seen: Option<u64>,
    stream: BoxStream<'static, Result<Event, ClientError>>,
}

/// What comes next.
pub(super) enum Next {
    /// An event.
    Event(Box<Event>),
    /// The connection is a new one, and what happened in between is not known: look again.
    Anew,
}

impl<'a> Following<'a> {
    /// Follows what happens behind event number `after`; from now on when absent.
    pub(super) async fn start(
        client: &'a Client,
        project: Option<String>,
        after: Option<u64>,
    ) -> Result<Self, ClientError> {
        let stream = opened(client, project.clone(), after).await?;
        Ok(Self { client, project, seen: after, stream })
    }

    /// The next event. Fails when the control plane stays away.
    pub(super) async fn next(&mut self) -> Result<Next, ClientError> {
        match self.stream.next().await {
            Some(Ok(event)) => {
                self.seen = Some(event.sequence);
                Ok(Next::Event(Box::new(event)))
            }
            Some(Err(ClientError::Broken(_) | ClientError::Unreachable { .. })) | None => {
                self.connect_again().await?;
                Ok(Next::Anew)
            }
            Some(Err(error)) => Err(error),
        }
    }

    async fn connect_again(&mut self) -> Result<(), ClientError> {
        let mut tries = 0;
        loop {
            tokio::time::sleep(PAUSE_FIRST * 2_u32.pow(tries)).await;
            match opened(self.client, self.project.clone(), self.seen).await {
                Ok(stream) => {
                    self.stream = stream;
                    return Ok(());
                }
                Err(ClientError::Unreachable { .. }) if tries + 1 < TRIES_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

async fn opened(
    client: &Client,
    project: Option<String>,
    after: Option<u64>,
) -> Result<BoxStream<'static, Result<Event, ClientError>>, ClientError> {
    Ok(match after {
        Some(after) => client.follow_events(project, after).await?.boxed(),
        None => client.follow_new_events(project).await?.boxed(),
    })
}
