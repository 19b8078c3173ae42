//! How operations, steps, members and the workload change state, one rule per test.

mod abandoned;
mod calls;
mod cancelling;
mod failing;
mod missed_hints;
mod outputs;
mod parameters;
mod succeeding;
