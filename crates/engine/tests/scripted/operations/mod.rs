//! How operations, steps, members and the workload change state, one rule per test.

mod abandoned;
mod cancelling;
mod failing;
mod outputs;
mod succeeding;
