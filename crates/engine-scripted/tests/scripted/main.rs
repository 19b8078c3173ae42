//! Tests of commands, operation drivers and keys over a real store. Each test scripts nodes, app and cluster; time is accelerated.
//!
//! Each test checks one rule. The simulation covers random faults and their outcomes.

#![allow(clippy::unwrap_used, reason = "a helper of tests is a test")]

mod audit_chain;
mod blocking_findings;
mod clusters;
mod controllers;
mod credentials;
mod engines;
mod followed;
mod history;
mod kit;
mod machines;
mod nodes;
mod operations;
mod reimage;
mod retention;
mod site;
mod tenants;
mod write_lock;
