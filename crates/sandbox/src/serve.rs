//! The requests on the init's socket.

use std::{rc::Rc, time::Duration};

use futures::SinkExt;
use futures::StreamExt;
use gpuaas_host::{
    JournalFrom,
    sandbox::protocol::{LINE_BYTES_MAX, Reply, Request},
};
use tokio::{
    net::{UnixListener, UnixStream},
    task::spawn_local,
};
use tokio_util::codec::{Framed, LinesCodec};

use crate::{
    journal::{Journal, number},
    units::Units,
};

/// Lines of a journal that are read at once.
const JOURNAL_BATCH: usize = 256;

type Connection = Framed<UnixStream, LinesCodec>;

/// Serves connections; never returns.
pub(crate) async fn run(units: Rc<Units>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let units = units.clone();
                spawn_local(async move {
                    let connection = Framed::new(stream, LinesCodec::new_with_max_length(LINE_BYTES_MAX));
                    if let Err(error) = answer(&units, connection).await {
                        tracing::debug!(error, "a connection ended early");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(units: &Units, mut connection: Connection) -> Result<(), String> {
    let Some(line) = connection.next().await else { return Ok(()) };
    let line = line.map_err(|error| error.to_string())?;
    let request: Request = match serde_json::from_str(&line) {
        Ok(request) => request,
        Err(error) => return send(&mut connection, &Reply::Refused(error.to_string())).await,
    };
    let reply = match request {
        Request::DaemonReload => {
            units.reload();
            Reply::Changed(true)
        }
        Request::Start { unit, wait } => start(units, &unit, wait).await,
        Request::Stop { unit } => match units.unit(&unit) {
            Some(unit) => {
                let ran = !unit.is_stopped();
                // If the supervisor has ended, there is nothing to stop.
                let _ = unit.stop().await;
                Reply::Changed(ran)
            }
            None => not_loaded(&unit),
        },
        Request::Enable { unit, enabled } => enable(units, &unit, enabled),
        Request::Mask { unit, masked } => match units.mask(&unit, masked) {
            Ok(changed) => Reply::Changed(changed),
            Err(error) if masked => Reply::Refused(format!("Failed to mask unit {unit}: {error}")),
            Err(error) => Reply::Refused(format!("Failed to unmask unit {unit}: {error}")),
        },
        Request::ResetFailed { unit } => match units.unit(&unit) {
            Some(known) if known.status.borrow().active != "inactive" => {
                let failed = known.status.borrow().active == "failed";
                let _ = known.reset().await;
                Reply::Changed(failed)
            }
            _ => not_loaded(&unit),
        },
        Request::Status { unit } => Reply::Status(units.unit(&unit).map(|unit| unit.status.borrow().clone())),
        Request::UnitFileState { unit } => Reply::UnitFileState(units.file_state(&unit)),
        Request::Watch { unit } => return watch(units, connection, &unit).await,
        Request::Journal { unit, from, follow } => match units.journal(&unit) {
            Some(journal) => return stream_journal(&journal, connection, from, follow).await,
            None => not_loaded(&unit),
        },
    };
    send(&mut connection, &reply).await
}

fn enable(units: &Units, name: &str, enabled: bool) -> Reply {
    if enabled && units.is_masked(name) {
        return Reply::Refused(format!("Failed to enable unit: Unit file {name} is masked."));
    }
    match units.unit(name) {
        Some(known) if enabled && !known.file.borrow().has_install => {
            Reply::Refused(format!("Unit {name} has no [Install] section."))
        }
        Some(_) => match units.enable(name, enabled) {
            Ok(changed) => Reply::Changed(changed),
            Err(error) => Reply::Refused(error.to_string()),
        },
        None if !enabled => Reply::Changed(units.enable(name, false).unwrap_or(false)),
        None => Reply::NotFound(format!("Failed to enable unit: Unit file {name} does not exist.")),
    }
}

async fn start(units: &Units, name: &str, wait: bool) -> Reply {
    if units.is_masked(name) {
        return Reply::Refused(format!("Failed to start {name}: Unit {name} is masked."));
    }
    let Some(unit) = units.unit(name) else {
        return Reply::NotFound(format!("Failed to start {name}: Unit {name} not found."));
    };
    // A unit that is being stopped starts afterwards; only a caller that waits for the job waits for that.
    let stopping = unit.status.borrow().active == "deactivating";
    let (taken, job) = unit.start();
    let changed = (stopping && !wait) || taken.await.unwrap_or(false);
    if !wait {
        return Reply::Changed(changed);
    }
    match job.await {
        Ok(Ok(())) => Reply::Changed(changed),
        Ok(Err(message)) => Reply::JobFailed(message),
        Err(_) => Reply::JobFailed(format!("Job for {name} was dropped.")),
    }
}

/// Sends a journal's lines; with `follow`, also new ones until the client disconnects.
async fn stream_journal(
    journal: &Journal,
    mut connection: Connection,
    from: JournalFrom,
    follow: bool,
) -> Result<(), String> {
    let mut sent = journal.before(&from);
    let mut newest = journal.newest();
    loop {
        newest.borrow_and_update();
        loop {
            let lines = journal.after(sent, JOURNAL_BATCH);
            let Some(last) = lines.last() else { break };
            sent = number(&last.cursor);
            for line in lines {
                send(&mut connection, &Reply::Line(line)).await?;
            }
        }
        if !follow {
            return Ok(());
        }
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return Ok(()) },
            hung_up = connection.next() => if hung_up.is_none() { return Ok(()) },
        }
    }
}

async fn watch(units: &Units, mut connection: Connection, name: &str) -> Result<(), String> {
    // Keeps only the status: the unit can be dropped when it is removed, which ends this stream.
    let status = units.unit(name).map(|unit| unit.status.clone());
    let Some(mut status) = status else { return send(&mut connection, &not_loaded(name)).await };
    loop {
        let now = status.borrow_and_update().clone();
        send(&mut connection, &Reply::Status(Some(now))).await?;
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return Ok(()) },
            // The watcher has disconnected.
            hung_up = connection.next() => if hung_up.is_none() { return Ok(()) },
        }
    }
}

fn not_loaded(unit: &str) -> Reply {
    Reply::NotFound(format!("Unit {unit} not loaded."))
}

async fn send(connection: &mut Connection, reply: &Reply) -> Result<(), String> {
    let line = serde_json::to_string(reply).map_err(|error| error.to_string())?;
    connection.send(line).await.map_err(|error| error.to_string())
}
