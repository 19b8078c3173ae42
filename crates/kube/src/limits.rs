//! How much an apiserver may send, and how long it may take. The machine behind it belongs to a tenant.
//!
//! Every limit holds beneath what reads the bytes: [`crate::metered`] counts them before TLS sees them, [`crate::connection`] before JSON does.

use std::time::Duration;

/// Longest answer of one object, in bytes. The largest that is asked for is a TokenRequest: its token has 1 to 2 KB, what was asked for comes
/// back beside it.
pub const ANSWER_BYTES_MAX: usize = 64 * 1_024;
/// Longest page of KubeNodes, in bytes. A KubeNode has 5 to 30 KB: fifty images by name, labels, volumes, and who set which field.
pub const NODES_BYTES_MAX: usize = 256 * 1_024;
/// Longest event of a watch, which is one KubeNode, in bytes.
pub const EVENT_BYTES_MAX: usize = 128 * 1_024;
/// Most bytes of a TLS handshake. Certificate chains have 2 to 5 KB.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 64 * 1_024;
/// Most bytes that may come over a connection on which one KubeNode is watched for [`WATCH_SECONDS`]. A kubelet reports at most every ten seconds.
pub(crate) const WATCH_BYTES_MAX: usize = 4 * EVENT_BYTES_MAX;
/// Longest head of an answer, in bytes; an apiserver's has about 500.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1_024;
/// Most headers of an answer; an apiserver sends about ten.
pub(crate) const HEADERS_MAX: usize = 64;
/// KubeNodes that are asked for at once: five of the largest fit into a page.
pub(crate) const NODES_PER_PAGE: usize = 5;
/// Most KubeNodes that are read. A workload has at most 51 members; a tenant may add KubeNodes of its own.
pub(crate) const NODES_MAX: usize = 255;
/// Longest mark of where the next page begins, in bytes; an apiserver's has about 200.
pub(crate) const CONTINUE_BYTES_MAX: usize = 4 * 1_024;

/// Most bytes that may come over a connection for an answer of at most `bytes_max`, headers, sizes of chunks and TLS records included: twice as many,
/// so that an answer in many small pieces fits.
pub(crate) const fn wire_bytes_max(bytes_max: usize) -> usize {
    2 * (bytes_max + HEAD_BYTES_MAX)
}

/// Longest time for an answer, from the first byte of a new connection to the last of the answer; of a watch, to its first. With etcd frozen, lists
/// hang for 20 s and more (measured at 1.36.3).
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Opening the stream and the TLS handshake take at most so long together; over a loaded wide-area link seconds are normal.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// An unused connection, and with it the tunnel, is closed after this long.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long a watch is asked for. It is opened again at once: a connection that fell silent is noticed that soon.
pub(crate) const WATCH_SECONDS: u64 = 30;
/// A watch over which nothing came for this long is broken: the apiserver should have ended it.
pub(crate) const WATCH_SILENCE_MAX: Duration = Duration::from_secs(WATCH_SECONDS + 5);
