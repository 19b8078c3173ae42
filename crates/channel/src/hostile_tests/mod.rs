//! Nodes that lie, over real TLS: each loses its own connection, and nobody else notices.

mod certificates;
mod connections;
mod fetching;
mod liveness;
mod readmission;
mod reports;
mod requests;
mod world;
