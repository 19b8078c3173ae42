//! Limits for the size and duration of an apiserver's answers. The machine behind it belongs to a tenant.
//!
//! Every limit is enforced below the layer that parses the bytes: [`crate::metered`] counts them before TLS, [`crate::connection`] before
//! JSON.

use std::time::Duration;

/// Longest answer with one object, in bytes. The largest is a TokenRequest: its token has 1 to 2 KB, and the request is repeated with it.
pub const ANSWER_BYTES_MAX: usize = 64 * 1_024;
/// Longest page of KubeNodes, in bytes. A KubeNode has 5 to 30 KB: fifty image names, labels, volumes, and the managers of its fields.
pub const NODES_BYTES_MAX: usize = 256 * 1_024;
/// Longest page of any list, in bytes. A page with large objects is requested again with fewer of them.
pub(crate) const PAGE_BYTES_MAX: usize = NODES_BYTES_MAX;
/// Longest event of a watch, which has one KubeNode or the metadata of one pod, in bytes.
pub const EVENT_BYTES_MAX: usize = 128 * 1_024;
/// Most bytes received in a TLS handshake. Certificate chains have 2 to 5 KB.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 64 * 1_024;
/// Most bytes received on a connection that watches one KubeNode for [`WATCH_SECONDS`]. A kubelet reports at most every ten seconds.
pub(crate) const WATCH_BYTES_MAX: usize = 4 * EVENT_BYTES_MAX;
/// Most bytes received on a connection that watches the metadata of one KubeNode's pods for [`WATCH_SECONDS`]. An ending pod causes about
/// five events of 3 KB, and a kubelet runs 110 pods by default.
pub(crate) const PODS_WATCH_BYTES_MAX: usize = 2 * 1_024 * 1_024;
/// Most bytes received on a connection that follows all KubeNodes for [`WATCH_SECONDS`]. A kubelet reports a change at most every ten
/// seconds: 51 of them cause about 150 events of 5 to 30 KB if all change all the time, and almost none if nothing does.
pub(crate) const NODES_WATCH_BYTES_MAX: usize = 4 * 1_024 * 1_024;
/// Longest head of an answer, in bytes; an apiserver's has about 500.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1_024;
/// Most headers of an answer; an apiserver sends about ten.
pub(crate) const HEADERS_MAX: usize = 64;
/// KubeNodes per page: five of the largest fit.
pub(crate) const NODES_PER_PAGE: usize = 5;
/// Most KubeNodes that are read. A workload has at most 51 members; a tenant may add KubeNodes.
pub(crate) const NODES_MAX: usize = 255;
/// Pods per page: so many of the usual 5 to 12 KB fit.
pub(crate) const PODS_PER_PAGE: usize = 20;
/// Most pods of one KubeNode that are read. A kubelet runs 110 by default and 500 at most where the limit was raised; the rest are finished
/// pods of Jobs, which stay until something deletes them.
pub(crate) const PODS_MAX: usize = 2_000;
/// Most DaemonSets with pods on one KubeNode.
pub(crate) const DAEMON_SETS_MAX: usize = 200;
/// PodDisruptionBudgets per page: so many of the usual 2 KB fit, and one with the names of 2,000 disrupted pods fits alone.
pub(crate) const BUDGETS_PER_PAGE: usize = 20;
/// Most PodDisruptionBudgets of one namespace that are read.
pub(crate) const BUDGETS_MAX: usize = 200;
/// Most labels of one object. Feature discovery for GPUs and processors sets 100 to 200 on a KubeNode.
pub(crate) const LABELS_MAX: usize = 512;
/// Longest `continue` token of a page, in bytes; an apiserver's has about 200.
pub(crate) const CONTINUE_BYTES_MAX: usize = 4 * 1_024;

/// Most bytes received on a connection for an answer of at most `bytes_max`, including headers, chunk sizes and TLS records: twice as many,
/// so that an answer in many small pieces fits.
pub(crate) const fn wire_bytes_max(bytes_max: usize) -> usize {
    2 * (bytes_max + HEAD_BYTES_MAX)
}

/// Longest time for a call, from the opening of a connection to the last byte of the answer; for a watch, to the head of the answer. With
/// etcd frozen, lists hang for 20 s and more (measured with 1.36.3).
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest time for opening the stream and the TLS handshake together; over a loaded wide-area link seconds are normal.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest time between two lists of a follower, and longest pause after failures.
pub(crate) const FOLLOW_AGAIN_MAX: Duration = Duration::from_secs(10);
/// Shortest time between the beginnings of two watches of a follower. Each is a TLS handshake of about 2 ms: a hostile apiserver that ends
/// every watch causes no more of them.
pub(crate) const WATCH_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Changes of KubeNodes within this time are shown together, however many events there are.
pub(crate) const CHANGES_TOGETHER: Duration = Duration::from_millis(500);
/// An unused connection, with its tunnel, closes after this time.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);
/// Requested duration of a watch in seconds. It is opened again right after; so a silent connection is detected in about this time.
pub(crate) const WATCH_SECONDS: u64 = 30;
/// A watch without any data for this time is broken: the apiserver should have ended it.
pub(crate) const WATCH_SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS + 5);
