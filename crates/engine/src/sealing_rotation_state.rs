//! What one process knows of the rotation of sealing keys, besides the keys.

use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

/// A process's state of the sealing-key rotation, besides the keys.
#[derive(Default)]
pub(crate) struct SealingRotationState {
    pub(crate) wake: Notify,
    pub(crate) is_key_file_old: AtomicBool,
}
