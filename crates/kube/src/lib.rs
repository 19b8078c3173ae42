//! The few Kubernetes calls that the platform makes, over byte streams that the caller's [`Connector`] opens.
//!
//! Guarantees: the apiserver's certificate is verified against the CA of the cluster's own kubeconfig, for the name that clients of the
//! cluster use; no request is sent before that. The machine behind the stream belongs to a tenant: every answer is limited in size, on the
//! wire and in memory, and in time, whatever the peer sends (`limits`); only the needed fields are kept; and a call is made only when it is
//! admitted ([`Admission`]). No key, token or kubeconfig is logged, shown by `Debug` or put into an error. Creating and deleting are
//! idempotent: repeating them after a crash ends in the same state.
//!
//! Waits and followers use watches. Only `/readyz` is polled, because nothing can be watched before it is `ok`, and a watch may be served
//! although it is not; [`Cluster::grant_access`] polls access reviews, because the authorizer's cache cannot be watched; and
//! [`Cluster::drain`] repeats evictions that a budget forbids, because only another eviction shows whether it still does.
//!
//! Deliberately absent: how a stream reaches the node (the channel's tunnels), and which call an operation needs and when (an app's
//! effects).

mod access;
mod budget;
mod calls;
mod cluster;
mod connection;
mod connector;
mod cordon;
mod dial;
mod drain;
mod drain_error;
mod drain_state;
mod endpoint;
mod error;
mod events;
mod eviction;
mod hold;
mod json;
mod kubeconfig;
mod labels;
mod limits;
mod list;
mod metered;
mod node;
mod node_deletion;
mod node_follower;
mod node_password;
mod node_watch;
mod object_name;
mod pods;
mod readyz;
mod text;
mod wait;

pub use access::{
    ACCESS_NAMESPACE, AccessGrant, AccessRole, AccessTerms, TOKEN_SECONDS_MAX, TOKEN_SECONDS_MIN, Withdrawn,
    label_value,
};
pub use calls::{Admission, CallKind, Permit};
pub use cluster::{Cluster, ClusterVersion, Progress, WhoAmI};
pub use connector::{ByteStream, Connector};
pub use drain::Drained;
pub use drain_error::{DrainBlock, DrainRefusal, EndingPod, Few, HeldPod, PODS_NAMED_MAX, Remains};
pub use endpoint::Endpoint;
pub use error::KubeError;
pub use hold::{Budget, BudgetStatus, Hold};
pub use kubeconfig::{KUBECONFIG_BYTES_MAX, Kubeconfig, KubeconfigError, KubeconfigText};
pub use limits::{ANSWER_BYTES_MAX, EVENT_BYTES_MAX, NODES_BYTES_MAX, REQUEST_TIMEOUT};
pub use node::{KubeNode, NodeCondition, Taint};
pub use node_follower::NodeFollower;
pub use object_name::ObjectName;
pub use pods::DrainOptions;
pub use readyz::{READYZ_PROBE_EVERY, Readiness};
