//! What a node is: fixed before the node is created.

use std::net::Ipv4Addr;

use super::{name::NodeName, network::Subnet, refusal::Refusal, state::State};

/// The properties of a node, fixed before it is created.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Name of the node.
    pub(crate) name: NodeName,
    /// Address of the node.
    pub(crate) address: Ipv4Addr,
    /// Network of the node.
    pub(crate) subnet: Subnet,
}

impl Plan {
    /// Returns the plan of a node of this lab.
    pub(super) fn of(state: &State, name: &NodeName) -> Result<Self, Refusal> {
        let address = state.shape.subnet.node(state.index_of(name)?);
        Ok(Self { name: name.clone(), address, subnet: state.shape.subnet })
    }
}
