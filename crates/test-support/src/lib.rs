//! What the tests of several crates share: clocks, random bytes, a database file, and waiting for a condition.
//!
//! Panics on any failure, because its callers are tests. Only dev-dependencies refer to this crate.
//!
//! Deliberately absent: a PostgreSQL server (`gpuaas-postgres-server`), and doubles that only one crate uses. `gpuaas-model` has its own:
//! its unit tests compile its traits a second time, as other types than this crate implements.

mod clock;
mod database;
mod entropy;
mod eventually;

pub use clock::{MachineClock, ManualClock, NOW};
pub use database::DatabaseFile;
pub use entropy::{Chance, SeededEntropy};
pub use eventually::eventually;
