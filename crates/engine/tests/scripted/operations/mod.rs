//! How operations, steps, members and the workload change state, one rule per test.

mod abandoned;
mod calls;
mod cancelling;
mod comparisons;
mod failing;
mod missed_hints;
mod outputs;
mod parameters;
mod plans;
mod succeeding;
