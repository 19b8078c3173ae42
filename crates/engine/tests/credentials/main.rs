//! Tokens, service accounts and the keys that sign tasks, over a genuine store; the nodes are scripted, and time is in a hurry.

#![allow(clippy::unwrap_used, reason = "a helper of tests is a test")]

mod giving;
mod keys;
mod limits;
mod strangers;
mod world;
