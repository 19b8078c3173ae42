//! Nodes that lie, with genuine certificates, to a control plane of real processes: their word changes nothing but themselves, and their floods
//! hold up nobody.

mod answers;
mod floods;
mod identities;
mod lie;
mod node;

pub(crate) use identities::{age_certificate, ago, authority, kept_certificate};
pub(crate) use lie::{Lies, hello};
pub(crate) use node::{Node, asked};
