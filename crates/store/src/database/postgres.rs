//! Connections to PostgreSQL.

use std::{borrow::Cow, sync::Arc};

use futures::TryStreamExt;
use sqlx::{
    AssertSqlSafe, Column, Connection as _, PgConnection, Row as _, TypeInfo, ValueRef,
    postgres::{PgArguments, PgRow},
};

use super::{
    Cell, Row, Value,
    row::{Columns, ReadCell},
};
use crate::error::StoreError;

pub(crate) struct Postgres {
    connection: PgConnection,
    /// Whether the connection was lost. Its next answer would be undefined.
    lost: bool,
}

impl Postgres {
    pub(super) async fn open(url: &str, setup: String) -> Result<Self, StoreError> {
        let mut connection = Self { connection: PgConnection::connect(url).await?, lost: false };
        connection.run(setup.into()).await?;
        Ok(connection)
    }

    pub(super) async fn run(&mut self, sql: Cow<'static, str>) -> Result<(), StoreError> {
        let ran = sqlx::raw_sql(AssertSqlSafe(sql.into_owned())).execute(&mut self.connection).await;
        self.mark_if_lost(ran.map(|_| ()))
    }

    pub(super) async fn execute(&mut self, sql: Cow<'static, str>, values: Vec<Value>) -> Result<u64, StoreError> {
        let ran = query(sql, values).execute(&mut self.connection).await;
        self.mark_if_lost(ran.map(|ran| ran.rows_affected()))
    }

    pub(super) async fn each_row(
        &mut self,
        sql: Cow<'static, str>,
        values: Vec<Value>,
        take: impl FnMut(Row) -> bool + Send,
    ) -> Result<(), StoreError> {
        let ran = pass_rows(sql.clone(), query(sql, values).fetch(&mut self.connection), take).await;
        self.mark_if_lost(ran)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    fn mark_if_lost<T>(&mut self, ran: Result<T, impl Into<StoreError>>) -> Result<T, StoreError> {
        let ran = ran.map_err(Into::into);
        self.lost |= matches!(&ran, Err(StoreError::Unreachable(_)));
        ran
    }
}

async fn pass_rows(
    sql: Cow<'static, str>,
    mut rows: futures::stream::BoxStream<'_, Result<PgRow, sqlx::Error>>,
    mut take: impl FnMut(Row) -> bool + Send,
) -> Result<(), StoreError> {
    let mut columns: Option<Arc<Columns>> = None;
    while let Some(row) = rows.try_next().await? {
        let columns = columns.get_or_insert_with(|| {
            Arc::new(Columns::of(sql.clone(), row.columns().iter().map(|of| of.name().to_owned()).collect()))
        });
        let cells = (0..columns.len()).map(|at| cell(&row, at)).collect::<Result<_, _>>()?;
        if !take(Row::new(columns.clone(), cells)) {
            break;
        }
    }
    Ok(())
}

fn query(sql: Cow<'static, str>, values: Vec<Value>) -> sqlx::query::Query<'static, sqlx::Postgres, PgArguments> {
    let query = match sql {
        Cow::Borrowed(sql) => sqlx::query(sql),
        Cow::Owned(sql) => sqlx::query(AssertSqlSafe(sql)),
    };
    values.into_iter().fold(query, |query, value| match value {
        Value::Text(text) => query.bind(text),
        Value::Int(int) => query.bind(int),
        Value::Blob(blob) => query.bind(blob),
    })
}

/// Reads a cell. The outer error fails the statement; the inner one describes a value of an unsupported type.
fn cell(row: &PgRow, at: usize) -> Result<ReadCell, StoreError> {
    let value = row.try_get_raw(at)?;
    if value.is_null() {
        return Ok(Ok(Cell::Null));
    }
    let kind = value.type_info().name().to_owned();
    Ok(Ok(match kind.as_str() {
        "INT8" => Cell::Int(row.try_get(at)?),
        "INT4" => Cell::Int(i64::from(row.try_get::<i32, _>(at)?)),
        "INT2" => Cell::Int(i64::from(row.try_get::<i16, _>(at)?)),
        "TEXT" | "VARCHAR" | "NAME" => Cell::Text(row.try_get(at)?),
        "BYTEA" => Cell::Blob(row.try_get(at)?),
        _ => return Ok(Err(format!("the type {kind} is not supported"))),
    }))
}
