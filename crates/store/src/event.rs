//! Events: append-only, numbered without gaps within each stream.

use gpuaas_model::{StreamName, Timestamp};
use sqlx::any::AnyRow;

use crate::{
    error::StoreError,
    page::Page,
    query::{Value, get_count, get_int, get_optional, get_parsed, get_text, int, text, text_or_empty},
    record::{EventRecord, NewEvent},
    store::{Change, Reader, Tx},
};

impl Tx {
    /// Appends an event under the stream's next number.
    pub async fn append_event(&mut self, event: &NewEvent) -> Result<EventRecord, StoreError> {
        let sequence = self.next_number(event.stream).await?;
        let at = self.clock.now();
        let values = vec![
            text(event.stream),
            int(sequence),
            Value::Int(at.as_millis()),
            text(event.kind),
            text(event.subject_kind),
            text(&event.subject_id),
            text_or_empty(event.correlation),
            text(&event.data),
        ];
        let sql = "insert into events (stream, sequence, at, kind, subject_kind, subject_id, correlation, data) \
                   values ($1, $2, $3, $4, $5, $6, $7, $8)";
        self.execute(sql, values).await?;
        self.hints.push(Change::Event { stream: event.stream, sequence });
        Ok(EventRecord {
            stream: event.stream,
            sequence,
            at,
            kind: event.kind,
            subject_kind: event.subject_kind.to_owned(),
            subject_id: event.subject_id.clone(),
            correlation: event.correlation,
            data: event.data.clone(),
        })
    }

    /// The next number of a sequence. Its row stays locked until this change ends, so whoever comes later waits and takes the number behind
    /// it, and a change that is dropped gives its number back: a sequence of the database's own would do neither.
    pub(crate) async fn next_number(&mut self, sequence: impl std::fmt::Display) -> Result<u64, StoreError> {
        let sql = "insert into streams (stream, last_sequence) values ($1, 1) \
                   on conflict (stream) do update set last_sequence = streams.last_sequence + 1 returning last_sequence";
        let row = self.row(sql, vec![text(sequence)]).await?;
        row.map_or_else(
            || Err(StoreError::Corrupt("a counter gave no number".to_owned())),
            |row| get_count(&row, "last_sequence"),
        )
    }
}

impl Reader {
    /// Events of a stream behind number `after`, oldest first, at most `limit`.
    pub async fn events(&mut self, stream: StreamName, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        let sql = "select * from events where stream = $1 and sequence > $2 order by sequence limit $3";
        let limit = Value::Int(i64::from(limit.min(Page::LIMIT_MAX)));
        let rows = self.rows(sql, vec![text(stream), int(after), limit]).await?;
        rows.iter().map(event).collect()
    }

    /// The number of a stream's last event; 0 when it has none.
    pub async fn last_sequence(&mut self, stream: StreamName) -> Result<u64, StoreError> {
        let row = self.row("select last_sequence from streams where stream = $1", vec![text(stream)]).await?;
        row.map_or(Ok(0), |row| get_count(&row, "last_sequence"))
    }
}

fn event(row: &AnyRow) -> Result<EventRecord, StoreError> {
    Ok(EventRecord {
        stream: get_parsed(row, "stream")?,
        sequence: get_count(row, "sequence")?,
        at: Timestamp::from_millis(get_int(row, "at")?),
        kind: get_parsed(row, "kind")?,
        subject_kind: get_text(row, "subject_kind")?,
        subject_id: get_text(row, "subject_id")?,
        correlation: get_optional(row, "correlation")?,
        data: serde_json::from_str(&get_text(row, "data")?)?,
    })
}
