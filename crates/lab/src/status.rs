//! `lab status`: shows this machine, the lab and the condition of its nodes. Changes nothing.

use super::{
    node::Node, packages, place, plan::Plan, probe, refusal::Refusal, remains, resource::Resource, state::State,
};

/// Runs the command.
pub(super) fn run() -> anyhow::Result<()> {
    packages::check_installed()?;
    println!("this machine");
    for finding in probe::machine()? {
        println!("  {}", finding.line());
    }
    let Some(state) = State::read()? else {
        return match remains::find()? {
            remains if remains.is_empty() => {
                println!("no lab");
                Ok(())
            }
            remains => {
                Err(Refusal::Remains(remains.iter().map(Resource::describe).collect::<Vec<_>>().join("; ")).into())
            }
        };
    };
    let shape = &state.shape;
    println!(
        "lab of {} nodes ({}) on {}, this machine is {}",
        shape.nodes.len(),
        shape.kind,
        shape.subnet,
        shape.subnet.gateway()
    );
    for name in &shape.nodes {
        let plan = Plan::of(&state, name)?;
        let (condition, leader, boots) = match Node::of(&state, name)?.condition() {
            Ok(now) => {
                (now.describe(), now.leader.map_or_else(|| "-".to_owned(), |leader| leader.to_string()), now.boots)
            }
            Err(error) => (format!("unknown ({error:#})"), "-".to_owned(), 0),
        };
        let (address, root) = (plan.address.to_string(), place::root_of(name));
        println!("  {:<9} {address:<14} {condition:<12} boots {boots:<3} pid {leader:<8} {root}", name.as_str());
    }
    if !state.is_up {
        return Err(Refusal::Remains("this lab is incomplete".to_owned()).into());
    }
    Ok(())
}
