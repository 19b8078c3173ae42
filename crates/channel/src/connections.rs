//! Registry of every node's open connections: enforces quotas, so that one node cannot starve the others, and finds all connections of a
//! node that may no longer connect.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use gpuaas_model::NodeId;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::backend::{Admission, PresentedCertificate};

/// Concurrent connections of one enrollment of a node, of any kind: fetches of every task and tunnels of many users.
pub(crate) const CONNECTIONS_PER_NODE_MAX: usize = 128;
/// Connections reserved for each enrollment, which other nodes cannot use up: the channel, a journal or two, and fetches of tasks.
pub(crate) const OWN_PER_NODE: usize = 8;
/// Reserved connections of all nodes together: 2,000 nodes with 8 each, or 16,000 channels.
const OWN_MAX: usize = 16_000;
/// Connections beyond [`OWN_PER_NODE`] of all nodes together. A greedy node uses up only these, never another node's reserved ones.
const RESERVE_MAX: usize = 4_000;

/// Concurrent requests of one enrollment of a node over all its connections: a few tasks, each of which fetches one thing at a time.
pub(crate) const REQUESTS_PER_NODE_MAX: usize = 8;

/// An open connection.
pub(crate) struct Connection {
    pub(crate) presented: PresentedCertificate,
    /// The admission that the connection was granted; unset until then.
    pub(crate) admitted: OnceLock<Admission>,
    /// Cancelling it ends the connection.
    pub(crate) end: CancellationToken,
    /// Request permits, shared by all connections of the enrollment.
    pub(crate) requests: Arc<Semaphore>,
    pool: Pool,
}

/// The quota against which a connection counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Own,
    Reserve,
}

/// All open connections.
#[derive(Default)]
pub(crate) struct Connections(Mutex<ConnectionTable>);

#[derive(Default)]
struct ConnectionTable {
    by_node: HashMap<NodeId, Vec<Arc<Connection>>>,
    own: usize,
    reserve: usize,
}

/// Registration of a connection; dropping it frees its quota.
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl Connections {
    /// Registers a connection. `None` when the enrollment's or the pool's quota is used up. Each enrollment has its own quota, so that a
    /// certificate of an earlier enrollment takes nothing from the node's present one.
    pub(crate) fn enter(self: &Arc<Self>, presented: PresentedCertificate) -> Option<ConnectionPermit> {
        let mut standing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = &presented.identity;
        let of_node = standing.by_node.get(&identity.node).map_or(&[][..], Vec::as_slice);
        let of_epoch = || of_node.iter().filter(|other| other.presented.identity.epoch == identity.epoch);
        if of_epoch().count() >= CONNECTIONS_PER_NODE_MAX {
            return None;
        }
        let requests = of_epoch().next().map(|other| other.requests.clone());
        let has_own = of_epoch().filter(|other| other.pool == Pool::Own).count() >= OWN_PER_NODE;
        let pool = if has_own { Pool::Reserve } else { Pool::Own };
        let (taken, max) = standing.count(pool);
        if *taken >= max {
            return None;
        }
        *taken += 1;
        let node = identity.node;
        let requests = requests.unwrap_or_else(|| Arc::new(Semaphore::new(REQUESTS_PER_NODE_MAX)));
        let (admitted, end) = (OnceLock::new(), CancellationToken::new());
        let connection = Arc::new(Connection { presented, admitted, end, requests, pool });
        standing.by_node.entry(node).or_default().push(connection.clone());
        Some(ConnectionPermit { connections: self.clone(), connection })
    }

    /// Returns a node's connections, of all its enrollments.
    pub(crate) fn of(&self, node: NodeId) -> Vec<Arc<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_node.get(&node).cloned().unwrap_or_default()
    }

    /// Returns the nodes that have connections.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_node.keys().copied().collect()
    }
}

impl ConnectionTable {
    /// Returns how many connections of a pool are taken, and its limit.
    fn count(&mut self, pool: Pool) -> (&mut usize, usize) {
        match pool {
            Pool::Own => (&mut self.own, OWN_MAX),
            Pool::Reserve => (&mut self.reserve, RESERVE_MAX),
        }
    }
}

impl std::ops::Deref for ConnectionPermit {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let node = self.connection.presented.identity.node;
        let mut standing = self.connections.0.lock().unwrap_or_else(PoisonError::into_inner);
        *standing.count(self.connection.pool).0 -= 1;
        if let Some(of_node) = standing.by_node.get_mut(&node) {
            of_node.retain(|other| !Arc::ptr_eq(other, &self.connection));
            if of_node.is_empty() {
                standing.by_node.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_trust::NodeIdentity;
    use uuid::Uuid;

    use super::*;

    fn presented(number: usize, epoch: u64) -> PresentedCertificate {
        let node = NodeId::from_uuid(Uuid::from_u128(number as u128));
        PresentedCertificate {
            identity: NodeIdentity { control_plane: "cp-1".into(), node, epoch },
            certificate: Vec::new(),
        }
    }

    #[test]
    fn greedy_nodes_leave_every_other_node_its_own_connections() {
        let connections = Arc::new(Connections::default());
        let greedy = 1_000;
        let mut held: Vec<ConnectionPermit> = (0..greedy)
            .flat_map(|number| std::iter::from_fn(|| connections.enter(presented(number, 1))).collect::<Vec<_>>())
            .collect();
        assert_eq!(held.len(), greedy * OWN_PER_NODE + RESERVE_MAX);
        let others: Vec<ConnectionPermit> = (greedy..greedy + 900)
            .flat_map(|number| std::iter::from_fn(|| connections.enter(presented(number, 1))).collect::<Vec<_>>())
            .collect();
        assert_eq!(others.len(), 900 * OWN_PER_NODE);
        held.clear();
        assert!(connections.enter(presented(greedy, 1)).is_some(), "the reserve is free again");
        drop(others);
        let standing = connections.0.lock().unwrap();
        assert_eq!((standing.own, standing.reserve, standing.by_node.len()), (0, 0, 0));
    }

    #[test]
    fn earlier_enrollment_uses_no_connection_of_the_present_one() {
        let connections = Arc::new(Connections::default());
        let earlier: Vec<ConnectionPermit> = std::iter::from_fn(|| connections.enter(presented(7, 1))).collect();
        assert_eq!(earlier.len(), CONNECTIONS_PER_NODE_MAX);
        let present: Vec<ConnectionPermit> = std::iter::from_fn(|| connections.enter(presented(7, 2))).collect();
        assert_eq!(present.len(), CONNECTIONS_PER_NODE_MAX);
        assert_eq!(connections.of(presented(7, 2).identity.node).len(), 2 * CONNECTIONS_PER_NODE_MAX);
    }
}
