//! Lying nodes with genuine certificates, against a control plane of real processes: a node's lies affect only that node, and its floods
//! delay no other.

mod answers;
mod floods;
mod identities;
mod lie;
mod node;

pub(crate) use identities::{age_certificate, authority, hours_ago, kept_certificate};
pub(crate) use lie::{Lies, hello};
pub(crate) use node::{Node, send_request};
