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
mod tests {
    use std::sync::Arc;

    use gpuaas_test_support::{DatabaseFile, ManualClock};

    use super::*;
    use crate::{
        AllocationFilter, AuditFilter, IdKind, IdPrefix, OperationFilter, Store, StoreOptions, TaskFilter,
        WorkloadFilter,
    };

    /// Returns the lists with conditions that must stay fast as rows of other projects, nodes, workloads or years
    /// accumulate, each with the index columns that the query plan must use.
    fn lists() -> Vec<(Select, &'static str)> {
        let (project, node) = (Some(uuid("01")), Some(uuid("02")));
        let prefix = IdPrefix::parse("0198c0de-0000-7000").unwrap();
        let tasks = TaskFilter::default;
        let operations = OperationFilter::default;
        let allocations = AllocationFilter::default;
        [
            (crate::workload::list(&WorkloadFilter { project, ..WorkloadFilter::default() }), "project_id=?"),
            (crate::workload::counted(project), "project_id=?"),
            (crate::operation::list(&OperationFilter { project, ..operations() }), "project_id=? AND id>?"),
            (
                crate::operation::list(&OperationFilter { workload: Some(uuid("03")), ..operations() }),
                "workload_id=? AND id>?",
            ),
            (
                crate::operation::list(&OperationFilter { state: "running".parse().ok(), ..operations() }),
                "state=? AND id>?",
            ),
            (crate::task::list(&TaskFilter { project, ..tasks() }), "project_id=? AND id>?"),
            (crate::task::list(&TaskFilter { node, ..tasks() }), "node_id=? AND id>?"),
            (crate::task::list(&TaskFilter { operation: Some(uuid("04")), ..tasks() }), "operation_id=? AND id>?"),
            (crate::allocation::list(&AllocationFilter { project, ..allocations() }), "project_id=? AND id>?"),
            (crate::allocation::list(&AllocationFilter { node, ..allocations() }), "node_id=? AND id>?"),
            (
                crate::allocation::list(&AllocationFilter { state: "active".parse().ok(), ..allocations() }),
                "state=? AND id>?",
            ),
            (crate::token::list(project).page(&Page::default()), "project_id=? AND id>?"),
            (crate::service_account::list(uuid("01")).page(&Page::default()), "project_id=?"),
        ]
        .into_iter()
        .chain(audits())
        // In a project of the caller, the planner may prefer the index of the project.
        .chain(IdKind::ALL.map(|kind| (crate::id_prefix::list(kind, &prefix, None), "id>? AND id<?")))
        .collect()
    }

    /// The audit with every filter, alone and together with conditions that many records of others fulfil.
    fn audits() -> Vec<(Select, &'static str)> {
        let (project, action) = (Some(uuid("01")), "task.dispatch".parse().ok());
        let (actor, target) = (Some("ann".to_owned()), Some("node/a".to_owned()));
        let (workload, correlation) = (Some(uuid("03")), Some(uuid("05")));
        let (since, until) = (Some(Timestamp::from_millis(1)), Some(Timestamp::from_millis(2)));
        let common = AuditFilter { project, action, actor: actor.clone(), ..AuditFilter::default() };
        let all = AuditFilter::default;
        [
            (AuditFilter { project, ..all() }, "project_id=? AND sequence>?"),
            (AuditFilter { target: target.clone(), ..all() }, "target=? AND sequence>?"),
            (AuditFilter { actor: actor.clone(), ..all() }, "actor=? AND sequence>?"),
            (AuditFilter { action, ..all() }, "action=? AND sequence>?"),
            (AuditFilter { workload, ..all() }, "workload_id=? AND sequence>?"),
            (AuditFilter { correlation, ..all() }, "correlation=? AND sequence>?"),
            (AuditFilter { actor, before: Some(AuditFilter::NEWEST), ..all() }, "actor=? AND sequence<?"),
            (common.clone(), "project_id=? AND sequence>?"),
            (AuditFilter { workload, ..common.clone() }, "workload_id=? AND sequence>?"),
            (AuditFilter { correlation, ..common.clone() }, "correlation=? AND sequence>?"),
            (AuditFilter { target, ..common.clone() }, "target=? AND sequence>?"),
            (AuditFilter { since, ..all() }, "COVERING INDEX audit_at (at>?)"),
            (AuditFilter { until, ..all() }, "COVERING INDEX audit_at (at<?)"),
            (AuditFilter { until, ..all() }, "sequence>? AND sequence<?"),
            (AuditFilter { since, until, ..common }, "project_id=? AND sequence>? AND sequence<?"),
        ]
        .map(|(filter, found_by)| (crate::audit::list(&filter), found_by))
        .into()
    }

    fn uuid<T: std::str::FromStr<Err: std::fmt::Debug>>(end: &str) -> T {
        format!("0198c0de-0000-7000-8000-0000000000{end}").parse().unwrap()
    }

    #[test]
    fn absent_conditions_add_nothing_to_the_statement() {
        let list = Select::all("id, doc from tasks").equal("state", None::<&str>).equal("node_id", Some("n"));
        let list = list.within("tasks", (None, None), (true, true)).page(&Page::default());
        let expected = "select id, doc from tasks where node_id = $1 and id > $2 order by id limit $3";
        assert_eq!((list.sql().as_str(), list.values.len()), (expected, 3));
        assert_eq!(Select::all("id from tasks").then("order by id").sql(), "select id from tasks order by id");
    }

    #[tokio::test]
    async fn filtered_pages_are_found_by_an_index() {
        let database = DatabaseFile::new();
        let options = StoreOptions { url: database.url() };
        Store::open(&options, Arc::new(ManualClock::default())).await.unwrap().close().await;
        let store = rusqlite::Connection::open(database.path()).unwrap();
        for (list, found_by) in lists() {
            let mut plan = store.prepare(&format!("explain query plan {}", list.sql())).unwrap();
            let steps = plan.raw_query().mapped(|row| row.get::<_, String>("detail")).collect::<Result<Vec<_>, _>>();
            let steps = steps.unwrap();
            assert!(steps.iter().any(|step| step.contains(found_by)), "{}: {steps:?}", list.sql());
        }
    }
}
