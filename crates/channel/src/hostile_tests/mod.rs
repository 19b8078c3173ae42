//! Misbehaving nodes, over real TLS: each loses its own connection and affects no other node.

mod certificates;
mod connections;
mod control_plane;
mod fetching;
mod liveness;
mod recheck;
mod reports;
mod requests;
