//! The versioned protocol between the control plane and its nodes, as data: task parameters and results, hello messages, and streamed
//! lines.
//!
//! Deliberately absent: signatures (`trust`), connections (`channel`, `agent`), and what a task does to a host (`agent`).

pub mod bounds;
pub mod session;
pub mod task;
