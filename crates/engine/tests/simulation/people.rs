//! The simulated clients of a seed: they enroll nodes, deploy, and resume operations that need attention.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use gpuaas_engine::{Caller, CommandError, Engine, Precondition, commands};
use gpuaas_model::{
    AllocationId, AllocationState, ChainResult, Connectivity, CorrelationId, Name, NodeId, NodeState, OperationState,
    Principal, ProjectId, Role, TokenId, WorkloadId,
};
use gpuaas_store::{AllocationFilter, NodeFilter, OperationRecord};
use gpuaas_trust::{EnrollmentString, NodeIdentity, NodeKey, SecretText};
use gpuaas_wire::session::EnrollRequest;
use serde_json::{Value, json};

use crate::{cluster::LABEL, node::Node, oracles::Oracle, plane, simulation::Simulation};

/// The interval at which clients poll and retry.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// A deployment fails the seed if none of this many operations succeeds.
const RESUMES_MAX: usize = 8;
/// The wait after the deployment, until the last late message has arrived and the last lease has expired.
const QUIET: Duration = Duration::from_secs(75);
/// The pause between two pings during a deployment.
const PING_EVERY: Duration = Duration::from_secs(5);
const VERSION: &str = "v1.36.3+rke2r1";
const WORKLOAD: &str = "train";

/// The ids of a finished deployment.
pub(crate) struct Deployed {
    pub(crate) project: ProjectId,
    pub(crate) workload: WorkloadId,
}

/// Enrolls all nodes, then allocates them and deploys while faults are injected. Returns when an operation has succeeded, or why none did.
pub(crate) async fn deploy(simulation: Arc<Simulation>) -> Result<Deployed, String> {
    let faults = simulation.faults().clone();
    (0..faults.replicas).for_each(|slot| plane::start(&simulation, slot, None));
    let people = People::of(&simulation);
    let project = people.project("lab").await?;
    people.import_release().await?;
    let mut nodes = Vec::new();
    for index in 0..faults.nodes {
        nodes.push(people.enroll(index).await?);
    }
    simulation.set_nodes(nodes);
    simulation.nodes().iter().for_each(|node| node.start_agent(&simulation));
    people.all_connected().await?;
    simulation.start_faults();
    for node in simulation.nodes() {
        people.allocation(project, node.id).await?;
    }
    let workload = people.workload(project).await?;
    let ended = tokio::select! {
        biased;
        ended = people.wait_for_success(workload) => ended,
        () = people.ping_nodes() => Ok(()),
    };
    ended?;
    simulation.stop_faults();
    simulation.scheduler.sleep(QUIET).await;
    Ok(Deployed { project, workload })
}

/// A client of the control planes. It acts as a platform admin unless a method takes a caller.
pub(crate) struct People {
    simulation: Arc<Simulation>,
}

impl People {
    pub(crate) fn of(simulation: &Arc<Simulation>) -> Self {
        Self { simulation: simulation.clone() }
    }

    /// Sends a request once. Returns `None` if no answer came; the request may have been carried out.
    pub(crate) async fn try_once<T: Send + 'static>(
        &self,
        what: impl FnOnce(Arc<Engine>, Caller) -> BoxFuture<'static, Result<T, CommandError>> + Send,
    ) -> Option<Result<T, CommandError>> {
        self.try_as(self.caller(), what).await
    }

    /// Sends a request once as the given caller. Returns `None` as [`People::try_once`] does.
    pub(crate) async fn try_as<T: Send + 'static>(
        &self,
        caller: Caller,
        what: impl FnOnce(Arc<Engine>, Caller) -> BoxFuture<'static, Result<T, CommandError>> + Send,
    ) -> Option<Result<T, CommandError>> {
        self.simulation.ask(|engine| what(engine, caller)).await
    }

    /// Repeats a request until an answer comes.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        what: impl Fn(Arc<Engine>, Caller) -> BoxFuture<'static, Result<T, CommandError>> + Send + Sync,
    ) -> Result<T, CommandError> {
        loop {
            let caller = self.caller();
            let asked = self.simulation.ask(|engine| what(engine, caller));
            match asked.await {
                Some(answer) => return answer,
                None => self.simulation.scheduler.sleep(POLL_INTERVAL).await,
            }
        }
    }

    fn caller(&self) -> Caller {
        let token = TokenId::from_uuid(self.simulation.uuid());
        let principal = Principal {
            token,
            name: "ada".to_owned(),
            role: Role::PlatformAdmin,
            project: None,
            service_account: None,
            workload: None,
        };
        Caller {
            principal,
            correlation: CorrelationId::from_uuid(self.simulation.uuid()),
            is_dry_run: false,
            expected_plan: None,
            session: None,
        }
    }

    pub(crate) async fn project(&self, project_name: &str) -> Result<ProjectId, String> {
        let made = self.ask(|engine, caller| {
            let called = name(project_name);
            Box::pin(async move { commands::project::create(&engine, &caller, called).await })
        });
        made.await.map(|project| project.id).map_err(message)
    }

    /// Verifies the chain of the audit; reports a violation if it is broken or if nothing was sealed.
    pub(crate) async fn verify_audit(&self) -> Result<(), String> {
        let verified = self
            .ask(|engine, caller| Box::pin(async move { commands::audit_chain::verify(&engine, &caller, None).await }));
        let verified = verified.await.map_err(message)?;
        if verified.result() != ChainResult::Intact || verified.seals == 0 {
            self.simulation.report_violation(Oracle::Audit, format!("the chain of the audit: {verified:?}"));
        }
        Ok(())
    }

    pub(crate) async fn import_release(&self) -> Result<(), String> {
        let recorded = self.ask(|engine, caller| {
            let files = ["rke2.linux-amd64.tar.gz", "rke2-images.linux-amd64.tar.zst", "sha256sum-amd64.txt"];
            let file = |name: &str| (name.to_owned(), gpuaas_trust::sha256_hex(name.as_bytes()), 1_000);
            let release = commands::artifact::VerifiedRelease {
                app: "rke2".to_owned(),
                version: VERSION.to_owned(),
                files: files.map(file).into(),
                source: "the simulation".to_owned(),
                stand_in: true,
            };
            Box::pin(async move { commands::artifact::record(&engine, &caller, release).await })
        });
        recorded.await.map(|_| ()).map_err(message)
    }

    pub(crate) async fn enroll(&self, index: usize) -> Result<Arc<Node>, String> {
        let text = format!("gpu-{}", index + 1);
        let registered = self.ask(|engine, caller| {
            let name = name(&text);
            Box::pin(async move {
                commands::node::register(&engine, &caller, name, None, std::collections::BTreeMap::new()).await
            })
        });
        let (node, string) = registered.await.map_err(message)?;
        let identity = self.redeem(node.id, &string, false).await?;
        Ok(Node::new(index, text, identity))
    }

    /// Redeems an enrollment string on the node's machine. A reimaged machine has a new machine id.
    pub(crate) async fn redeem(
        &self,
        node: NodeId,
        string: &SecretText,
        is_reimaged: bool,
    ) -> Result<NodeIdentity, String> {
        let string = EnrollmentString::decode(string.expose()).map_err(|error| error.to_string())?;
        let machine_id = match is_reimaged {
            true => format!("machine-{}", self.simulation.uuid()),
            false => format!("machine-{}", string.name),
        };
        let redeemed = self.ask(|engine, caller| {
            let ask = EnrollRequest {
                node,
                token: string.token.expose().to_owned(),
                csr: certificate_request(),
                machine_id: machine_id.clone(),
                agent_version: "1".to_owned(),
                clock: None,
                reimage: None,
            };
            Box::pin(async move { commands::node::redeem(&engine, caller.correlation, ask).await })
        });
        let enrolled = redeemed.await.map_err(message)?;
        Ok(NodeIdentity { control_plane: enrolled.control_plane, node, epoch: enrolled.epoch })
    }

    pub(crate) async fn all_connected(&self) -> Result<(), String> {
        loop {
            let nodes = self.read(async |reader| reader.nodes(&NodeFilter::default()).await).await?;
            let mut awaited = nodes.iter().filter(|node| node.state != NodeState::NeedsReimage);
            if awaited.all(|node| node.connectivity == Connectivity::Connected) {
                return Ok(());
            }
            self.simulation.scheduler.sleep(POLL_INTERVAL).await;
        }
    }

    /// Allocates the node to the project and waits until the allocation is active. Allocates again if the inspection fails, or
    /// if an earlier allocation is released.
    pub(crate) async fn allocation(&self, project: ProjectId, node: NodeId) -> Result<(), String> {
        let filter = AllocationFilter { node: Some(node), ..AllocationFilter::default() };
        loop {
            let all = self.read(async |reader| reader.allocations(&filter).await).await?;
            match all.last().map(|allocation| allocation.state) {
                Some(AllocationState::Active) => return Ok(()),
                Some(AllocationState::Failed | AllocationState::Released) | None => {
                    let asked = self.ask(move |engine, caller| {
                        Box::pin(async move { commands::allocation::create(&engine, &caller, project, node).await })
                    });
                    if let Err(error) = asked.await {
                        self.simulation.log(&format!("no allocation: {error}"));
                    }
                }
                Some(_) => {}
            }
            self.simulation.scheduler.sleep(POLL_INTERVAL).await;
        }
    }

    /// Deploys onto all nodes.
    async fn workload(&self, project: ProjectId) -> Result<WorkloadId, String> {
        self.workload_on(project, self.simulation.nodes().len()).await
    }

    /// Deploys onto the first `count` nodes.
    pub(crate) async fn workload_on(&self, project: ProjectId, count: usize) -> Result<WorkloadId, String> {
        let allocations = self.read(async |reader| reader.allocations(&AllocationFilter::default()).await).await?;
        let of = |node: &Arc<Node>| {
            let active =
                |held: &&gpuaas_store::AllocationRecord| held.node == node.id && held.state == AllocationState::Active;
            allocations.iter().find(active).map(|held| held.id.to_string()).unwrap_or_default()
        };
        let named: Vec<String> = self.simulation.nodes().iter().take(count).map(of).collect();
        let intent = json!({ "server_allocation_id": named[0], "agent_allocation_ids": named[1..] });
        // A followed cluster has something that can deviate.
        let config = match self.simulation.faults().follows_clusters {
            true => json!({ "node_labels": { (LABEL.0): LABEL.1 } }),
            false => json!({}),
        };
        loop {
            let found = self.read(async |reader| reader.workload_by_name(project, WORKLOAD).await).await?;
            if let Some(workload) = found {
                return Ok(workload.id);
            }
            let (intent, config): (Value, Value) = (intent.clone(), config.clone());
            let asked = self.ask(move |engine, caller| {
                let ask = commands::workload::Deploy {
                    project,
                    app: "rke2".to_owned(),
                    version: None,
                    name: name(WORKLOAD),
                    intent: intent.clone(),
                    config: config.clone(),
                };
                Box::pin(async move { commands::workload::deploy(&engine, &caller, ask).await })
            });
            if let Err(error) = asked.await {
                self.simulation.log(&format!("no deployment: {error}"));
                self.simulation.scheduler.sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Pings the nodes in turn, without retries: a replica that dies leaves behind a ping task without a waiter.
    async fn ping_nodes(&self) {
        for node in self.simulation.nodes().iter().cycle() {
            let (id, caller) = (node.id, self.caller());
            let asked = self
                .simulation
                .ask(move |engine| Box::pin(async move { commands::ping::ping(&engine, &caller, id).await }));
            match asked.await {
                Some(Ok(_)) => {}
                Some(Err(error)) => self.simulation.log(&format!("no ping: {error}")),
                None => self.simulation.log("no answer to a ping"),
            }
            self.simulation.scheduler.sleep(PING_EVERY).await;
        }
    }

    /// Waits for the newest operation to end and resumes the workload until one succeeds. Stops fault injection at the second failure.
    pub(crate) async fn wait_for_success(&self, workload: WorkloadId) -> Result<(), String> {
        for round in 0..RESUMES_MAX {
            let ended = self.end_of_newest(workload).await?;
            let fault = ended.fault.as_ref().map_or("no fault", |fault| fault.code.as_str());
            self.simulation.log(&format!("{} ended {}, {fault}", ended.kind, ended.state));
            if ended.state == OperationState::Succeeded {
                return Ok(());
            }
            if round > 0 {
                self.simulation.stop_faults();
            }
            self.all_connected().await?;
            let resumed = self.ask(move |engine, caller| {
                Box::pin(
                    async move { commands::workload::resume(&engine, &caller, workload, &Precondition::Any).await },
                )
            });
            if let Err(error) = resumed.await {
                self.simulation.log(&format!("not resumed: {error}"));
            }
        }
        Err(format!("it did not succeed within {RESUMES_MAX} operations"))
    }

    pub(crate) async fn end_of_newest(&self, workload: WorkloadId) -> Result<OperationRecord, String> {
        loop {
            let newest = self.read(async |reader| reader.newest_operation(workload).await).await?;
            if let Some(ended) = newest.filter(|operation| operation.state.is_final()) {
                return Ok(ended);
            }
            self.simulation.scheduler.sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits before a request is repeated.
    pub(crate) async fn pause(&self) {
        self.simulation.scheduler.sleep(POLL_INTERVAL).await;
    }

    /// Releases an allocation.
    pub(crate) async fn release(&self, allocation: AllocationId) -> Result<(), String> {
        let asked = self.ask(move |engine, caller| {
            Box::pin(async move {
                commands::allocation::release(&engine, &caller, allocation, &Precondition::Any).await.map(drop)
            })
        });
        asked.await.map_err(message)
    }

    pub(crate) async fn read<T>(
        &self,
        what: impl AsyncFnOnce(&mut gpuaas_store::Reader) -> Result<T, gpuaas_store::StoreError>,
    ) -> Result<T, String> {
        let mut reader = self.simulation.store.read().await.map_err(|error| error.to_string())?;
        what(&mut reader).await.map_err(|error| error.to_string())
    }
}

/// Cancels every open operation once, as a person does who sees it begin a step.
pub(crate) async fn cancel_open(simulation: Arc<Simulation>) {
    let people = People::of(&simulation);
    let open = people.read(async |reader| reader.open_operations().await).await.unwrap_or_default();
    for OperationRecord { id, .. } in open {
        let asked = people.try_once(move |engine, caller| {
            Box::pin(async move { commands::operation::cancel(&engine, &caller, id).await })
        });
        if accepted_answer(&simulation, "cancel in a step", asked.await).is_some() {
            simulation.count("operations cancelled in a step");
        }
    }
}

pub(crate) fn message(error: CommandError) -> String {
    error.to_string()
}

/// Returns the answer to a request that was sent once. Writes a refusal or a missing answer to the trace and returns `None`.
pub(crate) fn accepted_answer<T>(
    simulation: &Simulation,
    what: &str,
    answer: Option<Result<T, CommandError>>,
) -> Option<T> {
    match answer {
        Some(Ok(answer)) => Some(answer),
        Some(Err(refused)) => {
            simulation.log(&format!("{what} was refused: {refused}"));
            None
        }
        None => {
            simulation.log(&format!("no answer to {what}"));
            None
        }
    }
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("it is a name")
}

/// Returns a certificate request for a new key. The key does not follow from the seed; traces contain no certificates.
fn certificate_request() -> String {
    NodeKey::generate().and_then(|key| key.request_pem()).expect("a request is made")
}
