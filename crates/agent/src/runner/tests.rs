//! Tests of the runner through the function that accepts envelopes: refusals, memory, cancellation.

mod keys;
mod ledger;
mod ownership;
mod refusals;
mod running;
mod starts;
mod test_node;
