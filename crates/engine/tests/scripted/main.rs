//! Commands, drivers and keys over a genuine store; nodes, app and cluster do what a test says, and time is in a hurry.
//!
//! What goes wrong by chance, and how that ends, is the simulation's; here each rule is tried alone.

#![allow(clippy::unwrap_used, reason = "a helper of tests is a test")]

mod credentials;
mod handover;
mod history;
mod kit;
mod machines;
mod nodes;
mod operations;
mod retention;
mod site;
mod tenants;
mod world;
mod writer;
