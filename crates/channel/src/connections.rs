//! Every connection of every node that stands here: counted, so that one node leaves room for the others, and known, so that all of them end
//! when their node may no longer connect.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use gpuaas_model::NodeId;
use tokio_util::sync::CancellationToken;

use crate::backend::Presented;

/// Connections of one node at once, of whatever kind: every task fetching, and a tunnel for each of many users.
pub(crate) const CONNECTIONS_PER_NODE_MAX: usize = 128;

/// One that stands.
pub(crate) struct Connection {
    pub(crate) presented: Presented,
    /// Cancelling it ends the connection.
    pub(crate) end: CancellationToken,
}

/// All that stand.
#[derive(Default)]
pub(crate) struct Connections(Mutex<HashMap<NodeId, Vec<Arc<Connection>>>>);

/// The place of a connection among the others, for as long as it is held.
pub(crate) struct Place {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl Connections {
    /// Takes a place. `None` when the node has as many as it may.
    pub(crate) fn enter(self: &Arc<Self>, presented: Presented) -> Option<Place> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_node = all.entry(presented.identity.node).or_default();
        if of_node.len() >= CONNECTIONS_PER_NODE_MAX {
            return None;
        }
        let connection = Arc::new(Connection { presented, end: CancellationToken::new() });
        of_node.push(connection.clone());
        Some(Place { connections: self.clone(), connection })
    }

    /// Those of a node.
    pub(crate) fn of(&self, node: NodeId) -> Vec<Arc<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&node).cloned().unwrap_or_default()
    }

    /// The nodes that have any.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }
}

impl std::ops::Deref for Place {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let node = self.connection.presented.identity.node;
        let mut all = self.connections.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_node) = all.get_mut(&node) {
            of_node.retain(|other| !Arc::ptr_eq(other, &self.connection));
            if of_node.is_empty() {
                all.remove(&node);
            }
        }
    }
}
