//! Client for a sandbox's init.

use async_trait::async_trait;
use camino::Utf8PathBuf;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use tokio::{io::AsyncWriteExt, net::UnixStream};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use super::protocol::{LINE_BYTES_MAX, Reply, Request};
use crate::{
    error::HostError,
    file::Changed,
    host::Units,
    journal::{JournalFrom, JournalLine},
    unit::{UnitFileState, UnitStatus},
};

/// Sends requests to a sandbox's init; each request has its own connection.
#[derive(Clone, Debug)]
pub struct InitClient {
    socket: Utf8PathBuf,
}

impl InitClient {
    /// Returns a client for the init that listens on this Unix socket.
    pub fn new(socket: Utf8PathBuf) -> Self {
        Self { socket }
    }

    /// Sends a request and returns its single reply; replies that report a failure become [`HostError::Unit`].
    pub async fn ask(&self, request: Request) -> Result<Reply, HostError> {
        let unit = unit_of(&request);
        let mut replies = self.stream(&request).await?;
        match replies.next().await {
            Some(Ok(Reply::NotFound(message) | Reply::JobFailed(message) | Reply::Refused(message))) => {
                Err(HostError::Unit { unit, message })
            }
            Some(reply) => reply,
            None => Err(HostError::InitUnreachable("it closed the connection".to_owned())),
        }
    }

    async fn changed(&self, request: Request) -> Result<Changed, HostError> {
        match self.ask(request).await? {
            Reply::Changed(true) => Ok(Changed::Yes),
            Reply::Changed(false) => Ok(Changed::No),
            other => Err(HostError::Init(format!("unexpected reply {other:?}"))),
        }
    }

    /// Sends a request and returns all replies.
    async fn stream(&self, request: &Request) -> Result<BoxStream<'static, Result<Reply, HostError>>, HostError> {
        let unreachable = |error: std::io::Error| HostError::InitUnreachable(error.to_string());
        let mut stream = connect(&self.socket).await.map_err(unreachable)?;
        let mut line = serde_json::to_vec(request).map_err(|error| HostError::Init(error.to_string()))?;
        line.push(b'\n');
        stream.write_all(&line).await.map_err(unreachable)?;
        let lines = FramedRead::new(stream, LinesCodec::new_with_max_length(LINE_BYTES_MAX));
        let replies = lines.map_err(read_error).and_then(|line| async move {
            serde_json::from_str(&line).map_err(|error| HostError::Init(error.to_string()))
        });
        Ok(replies.boxed())
    }
}

#[async_trait]
impl Units for InitClient {
    async fn daemon_reload(&self) -> Result<(), HostError> {
        self.changed(Request::DaemonReload).await.map(|_| ())
    }

    async fn start(&self, unit: &str) -> Result<Changed, HostError> {
        self.changed(Request::Start { unit: unit.to_owned(), wait: false }).await
    }

    async fn stop(&self, unit: &str) -> Result<Changed, HostError> {
        self.changed(Request::Stop { unit: unit.to_owned() }).await
    }

    async fn enable(&self, unit: &str) -> Result<Changed, HostError> {
        self.changed(Request::Enable { unit: unit.to_owned(), enabled: true }).await
    }

    async fn disable(&self, unit: &str) -> Result<Changed, HostError> {
        self.changed(Request::Enable { unit: unit.to_owned(), enabled: false }).await
    }

    async fn unmask(&self, unit: &str) -> Result<Changed, HostError> {
        self.changed(Request::Mask { unit: unit.to_owned(), masked: false }).await
    }

    async fn unit_file_state(&self, unit: &str) -> Result<UnitFileState, HostError> {
        match self.ask(Request::UnitFileState { unit: unit.to_owned() }).await? {
            Reply::UnitFileState(state) => Ok(state),
            other => Err(HostError::Init(format!("unexpected reply {other:?}"))),
        }
    }

    fn enablement_paths(&self, unit: &str) -> Vec<Utf8PathBuf> {
        let files =
            ["/etc/systemd/system", "/usr/local/lib/systemd/system"].map(|folder| [folder, unit].join("/").into());
        files.into_iter().chain([Utf8PathBuf::from("/.sandbox/enabled")]).collect()
    }

    async fn reset_failed(&self, unit: &str) -> Result<Changed, HostError> {
        match self.unit(unit).await? {
            Some(status) if status.active == "inactive" => Ok(Changed::No),
            _ => self.changed(Request::ResetFailed { unit: unit.to_owned() }).await,
        }
    }

    async fn unit(&self, unit: &str) -> Result<Option<UnitStatus>, HostError> {
        match self.ask(Request::Status { unit: unit.to_owned() }).await? {
            Reply::Status(status) => Ok(status),
            other => Err(HostError::Init(format!("unexpected reply {other:?}"))),
        }
    }

    async fn unit_events(&self, unit: &str) -> Result<BoxStream<'static, UnitStatus>, HostError> {
        let replies = self.stream(&Request::Watch { unit: unit.to_owned() }).await?;
        let statuses = replies.filter_map(|reply| async move {
            match reply {
                Ok(Reply::Status(status)) => status,
                _ => None,
            }
        });
        Ok(statuses.boxed())
    }

    async fn journal(
        &self,
        unit: &str,
        from: JournalFrom,
        follow: bool,
    ) -> Result<BoxStream<'static, JournalLine>, HostError> {
        let replies = self.stream(&Request::Journal { unit: unit.to_owned(), from, follow }).await?;
        let lines = replies.filter_map(|reply| async move {
            match reply {
                Ok(Reply::Line(line)) => Some(line),
                _ => None,
            }
        });
        Ok(lines.boxed())
    }
}

/// Connects to a Unix socket of any path length: the kernel accepts 107 bytes, so longer paths are reached through a descriptor of their
/// folder.
async fn connect(socket: &camino::Utf8Path) -> std::io::Result<UnixStream> {
    const SUN_PATH_BYTES_MAX: usize = 107;
    if socket.as_str().len() <= SUN_PATH_BYTES_MAX {
        return UnixStream::connect(socket.as_std_path()).await;
    }
    let (folder, name) = (socket.parent(), socket.file_name());
    let (Some(folder), Some(name)) = (folder, name) else { return Err(std::io::ErrorKind::InvalidInput.into()) };
    let folder = std::fs::File::open(folder)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{name}", std::os::fd::AsRawFd::as_raw_fd(&folder))).await
}

fn unit_of(request: &Request) -> String {
    match request {
        Request::DaemonReload => String::new(),
        Request::Start { unit, .. }
        | Request::Stop { unit }
        | Request::Enable { unit, .. }
        | Request::ResetFailed { unit }
        | Request::Status { unit }
        | Request::Mask { unit, .. }
        | Request::UnitFileState { unit }
        | Request::Watch { unit }
        | Request::Journal { unit, .. } => unit.clone(),
    }
}

fn read_error(error: LinesCodecError) -> HostError {
    match error {
        LinesCodecError::Io(error) => HostError::InitUnreachable(error.to_string()),
        LinesCodecError::MaxLineLengthExceeded => HostError::Init(error.to_string()),
    }
}
