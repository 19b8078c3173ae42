//! The versioned protocol between the control plane and its nodes, as data: what a task takes and returns, what a hello says,
//! what streams back.
//!
//! Deliberately absent: signatures (`trust`), connections (`channel`, `agent`), and what a task does to a host (`agent`).

pub mod bounds;
pub mod session;
pub mod task;
