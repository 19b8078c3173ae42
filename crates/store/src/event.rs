//! Events: append-only, numbered without gaps within each stream.
//!
//! A sequence is a row of the table `streams`, which has the last number: each stream of events has one, and so have the audit records. The
//! column `sequence` of an event or audit record is its number.

use gpuaas_model::{CorrelationId, EventKind, StreamName, Timestamp};

use crate::{
    dialect::Dialect,
    error::StoreError,
    hint::Change,
    page::Page,
    query::{Row, Value, get_count, get_int, get_optional, get_parsed, get_text, int, text, text_or_empty},
    record::{EventRecord, NewEvent},
    store::{Reader, Tx},
};

/// The statement that takes the next number of the sequence `$1`.
macro_rules! next_number {
    () => {
        "insert into streams (stream, last_sequence) values ($1, 1) \
         on conflict (stream) do update set last_sequence = streams.last_sequence + 1 returning last_sequence"
    };
}

/// Statements that append a row under the next number of a sequence.
pub(crate) struct Numbered {
    /// Inserts a row under the number `$1`, which was taken before.
    pub(crate) with_number: &'static str,
    /// Takes the next number of the sequence `$1` and inserts a row under it, in one round trip. SQLite does not support
    /// this statement, and has no round trips to save.
    pub(crate) with_sequence: &'static str,
}

/// Builds the statements of a table from the list of its columns without `sequence`, and the list of their placeholders, from `$2` on.
macro_rules! numbered {
    ($table:literal, $columns:literal, $places:literal) => {
        $crate::event::Numbered {
            with_number: concat!("insert into ", $table, " (sequence, ", $columns, ") values ($1, ", $places, ")"),
            with_sequence: concat!(
                "with counted as (",
                $crate::event::next_number!(),
                ") insert into ",
                $table,
                " (sequence, ",
                $columns,
                ") select last_sequence, ",
                $places,
                " from counted returning sequence"
            ),
        }
    };
}

pub(crate) use {next_number, numbered};

const EVENTS: Numbered =
    numbered!("events", "stream, at, kind, subject_kind, subject_id, correlation, data", "$2, $3, $4, $5, $6, $7, $8");

/// Gives the next number to the stream of every project that is not deleted.
const NEXT_NUMBERS_OF_PROJECTS: &str = "insert into streams (stream, last_sequence) \
     select 'project/' || id, 1 from projects where deleted_at = 0 \
     on conflict (stream) do update set last_sequence = streams.last_sequence + 1 returning stream, last_sequence";

/// Inserts an event under the last number of each of these streams.
const EVENTS_OF_PROJECTS: &str = "insert into events (sequence, stream, at, kind, subject_kind, subject_id, correlation, data) \
     select streams.last_sequence, streams.stream, $1, $2, $3, $4, $5, $6 from streams \
     join projects on streams.stream = 'project/' || projects.id where projects.deleted_at = 0";

impl Tx {
    /// Appends the same event to the stream of every project that is not deleted, in two statements. `subject` is the kind and the id of its
    /// object.
    pub async fn append_event_to_every_project(
        &mut self,
        kind: EventKind,
        subject: (&'static str, &str),
        correlation: Option<CorrelationId>,
        data: &serde_json::Value,
    ) -> Result<(), StoreError> {
        let numbered = self.rows(NEXT_NUMBERS_OF_PROJECTS, Vec::new()).await?;
        let values = vec![
            Value::Int(self.clock.now().as_millis()),
            text(kind),
            text(subject.0),
            text(subject.1),
            text_or_empty(correlation),
            text(data),
        ];
        // Writers take turns, so the projects are the same as in the statement before.
        self.execute(EVENTS_OF_PROJECTS, values).await?;
        for row in &numbered {
            let (stream, sequence) = (get_parsed(row, "stream")?, get_count(row, "last_sequence")?);
            self.announced.hints.push(Change::Event { stream, sequence });
        }
        Ok(())
    }

    /// Appends an event with the stream's next number.
    pub async fn append_event(&mut self, event: &NewEvent) -> Result<EventRecord, StoreError> {
        let at = self.clock.now();
        let values = vec![
            text(event.stream),
            Value::Int(at.as_millis()),
            text(event.kind),
            text(event.subject_kind),
            text(&event.subject_id),
            text_or_empty(event.correlation),
            text(&event.data),
        ];
        let sequence = self.insert_numbered(&EVENTS, text(event.stream), values).await?;
        self.announced.hints.push(Change::Event { stream: event.stream, sequence });
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

    /// Inserts a row with the next number of a sequence and returns the number. The sequence's row stays locked until
    /// this change ends: later changes wait and take the following number, and a change that is rolled back leaves its
    /// number to the next. PostgreSQL's own sequences guarantee neither.
    pub(crate) async fn insert_numbered(
        &mut self,
        table: &Numbered,
        sequence: Value,
        values: Vec<Value>,
    ) -> Result<u64, StoreError> {
        let none = || StoreError::Database("a sequence returned no number".to_owned());
        match self.dialect {
            Dialect::Postgres => {
                let values = [vec![sequence], values].concat();
                let row = self.row(table.with_sequence, values).await?.ok_or_else(none)?;
                get_count(&row, "sequence")
            }
            Dialect::Sqlite => {
                let row = self.row(next_number!(), vec![sequence]).await?.ok_or_else(none)?;
                let number = get_count(&row, "last_sequence")?;
                self.execute(table.with_number, [vec![int(number)], values].concat()).await?;
                Ok(number)
            }
        }
    }
}

impl Reader {
    /// Returns events of a stream with a number above `after`, oldest first, at most `limit`.
    pub async fn events(&mut self, stream: StreamName, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        let sql = "select * from events where stream = $1 and sequence > $2 order by sequence limit $3";
        let limit = Value::Int(i64::from(limit.min(Page::LIMIT_MAX)));
        let rows = self.rows(sql, vec![text(stream), int(after), limit]).await?;
        rows.iter().map(event).collect()
    }

    /// Returns the number of a stream's last event; 0 if it has none.
    pub async fn last_sequence(&mut self, stream: StreamName) -> Result<u64, StoreError> {
        let row = self.row("select stream, last_sequence from streams where stream = $1", vec![text(stream)]).await?;
        row.map_or(Ok(0), |row| get_count(&row, "last_sequence"))
    }
}

pub(crate) fn event(row: &Row) -> Result<EventRecord, StoreError> {
    Ok(EventRecord {
        stream: get_parsed(row, "stream")?,
        sequence: get_count(row, "sequence")?,
        at: Timestamp::from_millis(get_int(row, "at")?),
        kind: get_parsed(row, "kind")?,
        subject_kind: get_text(row, "subject_kind")?,
        subject_id: get_text(row, "subject_id")?,
        correlation: get_optional(row, "correlation")?,
        data: row.record("data")?,
    })
}
