//! What each task type does, one file each. Every handler is idempotent: it looks before it acts, so that repeating it after an
//! interruption does what is missing and nothing else.

pub(crate) mod inspect;
pub(crate) mod noop;
