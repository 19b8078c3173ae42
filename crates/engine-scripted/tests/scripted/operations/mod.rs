//! How operations, steps, members and the workload change state, one rule per test.

mod abandoned;
mod calls;
mod cancelling;
mod comparisons;
mod drifting;
mod explained;
mod failing;
mod giving_up;
mod missed_hints;
mod outputs;
mod parameters;
mod plans;
mod preempting;
mod succeeding;
