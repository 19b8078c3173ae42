//! What becomes of operations, steps, members and the workload, rule by rule.

mod cancelling;
mod failing;
mod learning;
mod site;
mod succeeding;
