//! A model of the cluster for the app's effects: it is ready when the units on the machines are up.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use gpuaas_app_rke2::{Rke2Call, names};
use gpuaas_engine::effects::{AccessRequest, AppEffects, CallContext, Delivered};
use gpuaas_model::{Code, Timestamp};
use gpuaas_planner::{ClusterCall, MemberView};
use gpuaas_wire::task::TaskFailure;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zeroize::Zeroizing;

use crate::simulation::{Scenario, Simulation};

pub(crate) struct Cluster(pub(crate) Weak<Simulation>);

#[async_trait]
impl AppEffects for Cluster {
    async fn call(&self, call: ClusterCall, context: CallContext) -> Result<Value, TaskFailure> {
        let (name, call) = (call.call.as_str(), call.parse::<Rke2Call>()?);
        let Some(simulation) = self.0.upgrade() else {
            return Err(TaskFailure::new(Code::Internal, "the seed is over"));
        };
        (context.progress)(format!("{name}: waiting"));
        simulation.scheduler.sleep_until(next_check(&simulation)).await;
        (context.progress)(format!("{name}: looking"));
        // Every call needs the admin kubeconfig.
        admin_kubeconfig(&context).await?;
        if let Some(code) = simulation.faults().of_call(name) {
            simulation.count("calls failed");
            return Err(TaskFailure::new(code, "injected by the seed"));
        }
        let server = context.workload.component(names::SERVER).next();
        if simulation.scenario == Scenario::TwoTenants {
            echo(&simulation, &context, server, 1).await?;
        }
        check_up(&simulation, server)?;
        match call {
            Rke2Call::ApiReady {} | Rke2Call::DeliverAccess {} => {}
            Rke2Call::KubeNodeReady { kube_node } => {
                check_up(&simulation, context.workload.members.iter().find(|member| member.machine.name == kube_node))?;
            }
            Rke2Call::KubeNodes {} | Rke2Call::DeleteKubeNode { .. } => {
                return Err(TaskFailure::new(Code::TaskUnknown, format!("{name} is not simulated")));
            }
        }
        Ok(json!({ "call": name }))
    }

    async fn deliver_access(&self, request: AccessRequest, context: CallContext) -> Result<Delivered, TaskFailure> {
        let Some(simulation) = self.0.upgrade() else {
            return Err(TaskFailure::new(Code::Internal, "the seed is over"));
        };
        let server = context.workload.component(names::SERVER).next();
        echo(&simulation, &context, server, 20).await?;
        check_up(&simulation, server)?;
        Ok(Delivered {
            kubeconfig: Zeroizing::new("kind: Config".to_owned()),
            service_account: request.name,
            expires_at: context.now.plus(Duration::from_secs(request.ttl_seconds)),
        })
    }

    async fn revoke_access(&self, _service_account: &str, _context: CallContext) -> Result<(), TaskFailure> {
        Err(TaskFailure::new(Code::TaskUnknown, "access is not simulated"))
    }
}

/// Sends `times` bytes through a tunnel to the server's port 6443, up to 1 s apart, and reads each back.
async fn echo(
    simulation: &Arc<Simulation>,
    context: &CallContext,
    server: Option<&MemberView>,
    times: u32,
) -> Result<(), TaskFailure> {
    let broken = |error: std::io::Error| TaskFailure::new(Code::ClusterUnreachable, error.to_string());
    let Some(node) = server.and_then(|server| server.place.node()) else {
        return Err(TaskFailure::new(Code::ClusterUnreachable, "there is no server"));
    };
    let mut tunnel = context.tunnels.open(node, 6_443).await.map_err(broken)?;
    for _ in 0..times {
        tunnel.write_all(b"?").await.map_err(broken)?;
        tunnel.read_exact(&mut [0]).await.map_err(broken)?;
        simulation.scheduler.sleep(Duration::from_millis(simulation.between(1, 1_000))).await;
    }
    Ok(())
}

/// Returns the next time at which calls check the cluster. All calls share these times, so that they coincide.
fn next_check(simulation: &Simulation) -> Timestamp {
    let (passed, every) = (simulation.scheduler.now().as_millis(), simulation.faults().check_interval_ms);
    Timestamp::from_millis(passed - passed % every + every)
}

fn check_up(simulation: &Arc<Simulation>, member: Option<&MemberView>) -> Result<(), TaskFailure> {
    let node = member.and_then(|member| member.place.node());
    let up = node.is_some_and(|node| simulation.node(node).machine().is_up(simulation.scheduler.now()));
    if up { Ok(()) } else { Err(TaskFailure::new(Code::ClusterUnreachable, "its service is not up")) }
}

/// Checks that the admin kubeconfig secret holds what the server's node deposited.
async fn admin_kubeconfig(context: &CallContext) -> Result<(), TaskFailure> {
    let secret = context.workload.secrets.get(names::ADMIN_KUBECONFIG);
    let secret =
        secret.ok_or_else(|| TaskFailure::new(Code::Internal, "the workload has no secret for a kubeconfig"))?;
    let opened = context.secrets.open(secret.id).await;
    let opened = opened.map_err(|why| TaskFailure::new(Code::ClusterNotReady, why))?;
    let is_one = opened.starts_with(b"kubeconfig of ");
    if is_one { Ok(()) } else { Err(TaskFailure::new(Code::Internal, "the secret is not a kubeconfig")) }
}
