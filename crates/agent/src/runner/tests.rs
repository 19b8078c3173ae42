//! Tests of the runner through the function that accepts envelopes: refusals, memory, cancellation.

mod keys;
mod memory;
mod ownership;
mod refusals;
mod running;
mod starts;
mod world;
