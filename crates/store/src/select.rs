//! List statements that contain only the requested conditions, so that an index serves each of them.
//!
//! A condition that is always present and true when not requested (`$1 = '' or project_id = $1`) prevents the
//! database's planner from using an index on the column: a page of one project would read the rows of all projects.

use std::fmt::Display;

use gpuaas_model::Timestamp;

use crate::{
    database::{Row, Value},
    error::StoreError,
    page::Page,
    query::text,
    store::Reader,
};

/// A statement over one table. Names of tables and columns are constants of this crate; values are bound.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    columns_from_table: &'static str,
    conditions: Vec<String>,
    values: Vec<Value>,
    rest: String,
}

impl Select {
    /// Selects every row. `columns_from_table` has the columns, `from` and the name of the table.
    pub(crate) fn all(columns_from_table: &'static str) -> Self {
        Self { columns_from_table, conditions: Vec::new(), values: Vec::new(), rest: String::new() }
    }

    /// Selects rows with this text in the column; without a value, adds no condition.
    pub(crate) fn equal(self, column: &'static str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.when(column, "=", text(value)),
            None => self,
        }
    }

    /// Like [`Select::equal`], for a column whose partial index leaves out rows with an empty text.
    pub(crate) fn equal_indexed(self, column: &'static str, value: Option<impl Display>) -> Self {
        let has_value = value.is_some();
        let mut list = self.equal(column, value);
        if has_value {
            // Without this the planner cannot use the partial index, because it does not know the value.
            list.conditions.push(format!("{column} <> ''"));
        }
        list
    }

    /// Like [`Select::equal`], but an expression that no index serves, so that the index of another condition is used.
    pub(crate) fn equal_unindexed(mut self, column: &'static str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            self.values.push(text(value));
            self.conditions.push(format!("{column} || '' = ${}", self.values.len()));
        }
        self
    }

    /// Selects rows of a table with the columns `at` and `sequence`: at or after the first time, and before the second.
    ///
    /// The numbers that this period can contain are found in the index of times. They bound the list, because times of
    /// several clocks do not strictly grow with the numbers. `bounds` leaves out the lower or upper bound, where the
    /// position of the page is the closer one: SQLite searches by the first bound of each side.
    pub(crate) fn within(
        mut self,
        table: &'static str,
        period: (Option<Timestamp>, Option<Timestamp>),
        bounds: (bool, bool),
    ) -> Self {
        let mut during = Vec::new();
        for (compared, time) in [(">=", period.0), ("<", period.1)] {
            if let Some(time) = time {
                self.values.push(Value::Int(time.as_millis()));
                during.push(format!("at {compared} ${}", self.values.len()));
            }
        }
        let during = during.join(" and ");
        // `+ 0` keeps PostgreSQL from searching the minimum in the order of the numbers, through all earlier rows.
        let number = |function| format!("(select {function}(sequence + 0) from {table} where {during})");
        if period.0.is_some() && bounds.0 {
            self.conditions.push(format!("sequence >= {}", number("min")));
        }
        if period.1.is_some() && bounds.1 {
            self.conditions.push(format!("sequence <= {}", number("max")));
        }
        self.conditions.extend((!during.is_empty()).then_some(during));
        self
    }

    /// Selects rows whose key is between two texts, both included.
    pub(crate) fn between(self, key: &'static str, first: &str, last: &str) -> Self {
        self.when(key, ">=", text(first)).when(key, "<=", text(last))
    }

    /// Adds a condition without values.
    pub(crate) fn only(mut self, condition: &'static str) -> Self {
        self.conditions.push(condition.to_owned());
        self
    }

    /// Selects a page of rows in the order of their ids.
    pub(crate) fn page(self, page: &Page) -> Self {
        self.page_after("id", page.after(), page.limit())
    }

    /// Selects a page of rows in the reverse order of their ids.
    pub(crate) fn newest_page(self, page: &Page) -> Self {
        match &page.after {
            Some(last) => self.page_before("id", text(last), page.limit()),
            None => self.limited("id desc", page.limit()),
        }
    }

    /// Selects at most `limit` rows after this key, in the order of the keys.
    pub(crate) fn page_after(self, key: &'static str, after: Value, limit: Value) -> Self {
        self.when(key, ">", after).limited(key, limit)
    }

    /// Selects at most `limit` rows before this key, in the reverse order of the keys.
    pub(crate) fn page_before(self, key: &'static str, before: Value, limit: Value) -> Self {
        self.when(key, "<", before).limited(&format!("{key} desc"), limit)
    }

    fn limited(mut self, order: &str, limit: Value) -> Self {
        self.values.push(limit);
        self.rest = format!(" order by {order} limit ${}", self.values.len());
        self
    }

    /// Appends a clause without values.
    pub(crate) fn then(mut self, clause: &'static str) -> Self {
        self.rest = format!(" {clause}");
        self
    }

    fn when(mut self, column: &'static str, compared: &'static str, value: Value) -> Self {
        self.values.push(value);
        self.conditions.push(format!("{column} {compared} ${}", self.values.len()));
        self
    }

    fn sql(&self) -> String {
        let Self { columns_from_table, conditions, rest, .. } = self;
        let conditions = match conditions.is_empty() {
            true => String::new(),
            false => format!(" where {}", conditions.join(" and ")),
        };
        format!("select {columns_from_table}{conditions}{rest}")
    }
}

impl Reader {
    /// Returns the rows of a list.
    pub(crate) async fn selected(&mut self, list: Select) -> Result<Vec<Row>, StoreError> {
        self.read(list.sql().into(), list.values, usize::MAX).await
    }

    /// Returns the records in the column `doc` of all rows. The list has to yield the rows' keys too.
    pub(crate) async fn records<T: serde::de::DeserializeOwned>(&mut self, list: Select) -> Result<Vec<T>, StoreError> {
        self.selected(list).await?.iter().map(|row| row.record("doc")).collect()
    }
}

#[cfg(test)]
mod tests;
