//! How operations, steps, members and workloads change state, one rule per test. Each file says in its first line which rules it has.

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
