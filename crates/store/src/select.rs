//! Statements of lists, with the conditions that were asked for and no others: each is then found by an index.
//!
//! A condition that is always there and true where nothing was asked (`$1 = '' or project_id = $1`) hides the column from the database's planner:
//! a page of one project would read the rows of all projects.

use std::fmt::Display;

use gpuaas_model::Timestamp;

use crate::{
    database::{Row, Value},
    error::StoreError,
    page::Page,
    query::text,
    store::Reader,
};

/// A statement over one table. Names of tables and columns are this crate's own; values are bound.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    columns_from_table: &'static str,
    conditions: Vec<String>,
    values: Vec<Value>,
    rest: String,
}

impl Select {
    /// Every row of a table: its columns, and `from` with its name.
    pub(crate) fn all(columns_from_table: &'static str) -> Self {
        Self { columns_from_table, conditions: Vec::new(), values: Vec::new(), rest: String::new() }
    }

    /// Rows with that text in that column; every row where there is none.
    pub(crate) fn equal(self, column: &'static str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.when(column, "=", text(value)),
            None => self,
        }
    }

    /// Like [`Select::equal`], for a column whose index leaves out rows with an empty text.
    pub(crate) fn equal_indexed(self, column: &'static str, value: Option<impl Display>) -> Self {
        let is_asked = value.is_some();
        let mut list = self.equal(column, value);
        if is_asked {
            // Without this the planner cannot use the partial index: the value is not known when it plans.
            list.conditions.push(format!("{column} <> ''"));
        }
        list
    }

    /// Rows of that time or later; every row where there is no time.
    pub(crate) fn since(self, column: &'static str, time: Option<Timestamp>) -> Self {
        match time {
            Some(time) => self.when(column, ">=", Value::Int(time.as_millis())),
            None => self,
        }
    }

    /// Rows for which a condition without values holds.
    pub(crate) fn only(mut self, condition: &'static str) -> Self {
        self.conditions.push(condition.to_owned());
        self
    }

    /// A page of rows in the order of their ids.
    pub(crate) fn page(self, page: &Page) -> Self {
        self.behind("id", page.after(), page.limit())
    }

    /// At most `limit` rows behind that key, in the order of the keys.
    pub(crate) fn behind(self, key: &'static str, after: Value, limit: Value) -> Self {
        let mut list = self.when(key, ">", after);
        list.values.push(limit);
        list.rest = format!(" order by {key} limit ${}", list.values.len());
        list
    }

    /// Ends with a clause without values.
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
    /// The rows of a list.
    pub(crate) async fn selected(&mut self, list: Select) -> Result<Vec<Row>, StoreError> {
        self.read(list.sql().into(), list.values, usize::MAX).await
    }

    /// The records in every row's `doc`, of a list that yields the rows' keys too.
    pub(crate) async fn records<T: serde::de::DeserializeOwned>(&mut self, list: Select) -> Result<Vec<T>, StoreError> {
        self.selected(list).await?.iter().map(|row| row.record("doc")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpuaas_model::Clock;

    use super::*;
    use crate::{AllocationFilter, AuditFilter, OperationFilter, Store, StoreOptions, TaskFilter, WorkloadFilter};

    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(1_790_000_000_000)
        }
    }

    /// Each list with each condition that the rows of other projects, nodes, workloads or years must not slow down, and the columns that it must be
    /// found by.
    fn lists() -> Vec<(Select, &'static str)> {
        let (project, node) = (Some(uuid("01")), Some(uuid("02")));
        let tasks = TaskFilter::default;
        let operations = OperationFilter::default;
        let allocations = AllocationFilter::default;
        vec![
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
            (crate::audit::list(&AuditFilter { project, ..AuditFilter::default() }), "project_id=? AND sequence>?"),
            (
                crate::audit::list(&AuditFilter { target: Some("node/a".to_owned()), ..AuditFilter::default() }),
                "target=? AND sequence>?",
            ),
        ]
    }

    fn uuid<T: std::str::FromStr<Err: std::fmt::Debug>>(end: &str) -> T {
        format!("0198c0de-0000-7000-8000-0000000000{end}").parse().unwrap()
    }

    #[test]
    fn conditions_that_were_not_asked_for_are_not_in_the_statement() {
        let list = Select::all("id, doc from tasks").equal("state", None::<&str>).equal("node_id", Some("n"));
        let list = list.since("at", Some(Noon.now())).page(&Page::default());
        let expected = "select id, doc from tasks where node_id = $1 and at >= $2 and id > $3 order by id limit $4";
        assert_eq!((list.sql().as_str(), list.values.len()), (expected, 4));
        assert_eq!(Select::all("id from tasks").then("order by id").sql(), "select id from tasks order by id");
    }

    #[tokio::test]
    async fn page_of_a_project_a_node_or_a_workload_reads_no_row_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store.db");
        let options = StoreOptions { url: format!("sqlite://{}", file.display()) };
        Store::open(&options, Arc::new(Noon)).await.unwrap().close().await;
        let store = rusqlite::Connection::open(&file).unwrap();
        for (list, found_by) in lists() {
            let mut plan = store.prepare(&format!("explain query plan {}", list.sql())).unwrap();
            let steps = plan.raw_query().mapped(|row| row.get::<_, String>("detail")).collect::<Result<Vec<_>, _>>();
            let steps = steps.unwrap();
            assert!(steps.iter().any(|step| step.contains(found_by)), "{}: {steps:?}", list.sql());
        }
    }
}
