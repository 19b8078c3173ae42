//! What becomes of operations, steps, members and the workload, rule by rule.

mod abandoned;
mod cancelling;
mod failing;
mod learning;
mod succeeding;
