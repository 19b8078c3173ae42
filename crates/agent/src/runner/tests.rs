//! What the runner refuses, remembers and ends, through the entry that envelopes come in by.

mod keys;
mod memory;
mod ownership;
mod refusals;
mod running;
mod starts;
mod world;
