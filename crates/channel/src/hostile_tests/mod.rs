//! Nodes that lie, over real TLS: each loses its own connection, and nobody else notices.

mod certificates;
mod connections;
mod requests;
mod world;
