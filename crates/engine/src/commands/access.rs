//! Access to a workload's cluster: describe, deliver, revoke. Credentials are never stored or logged.

use std::{sync::Arc, time::Duration};

use gpuaas_model::{AccessGrantId, AuditAction, Code, Endpoint, EventKind, Lifecycle, Line, Permission, WorkloadId};
use gpuaas_store::{AccessGrantRecord, WorkloadRecord};
use gpuaas_wire::task::TaskFailure;
use serde_json::json;
use zeroize::Zeroizing;

use super::audit_workload;
use crate::{
    caller::Caller,
    effects::{AccessRequest, BREAK_GLASS_SECONDS_MAX, CallContext, DIRECT_SECONDS_MAX, Delivered},
    engine::Engine,
    error::{CommandError, check_line},
    fair_queue::{CallPermit, QueueFull},
    record::EventScope,
    rows::WorkloadRows,
};

/// Time limit of creating or revoking a credential.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit of the wait for a permit; a delivery to a healthy cluster takes a fifth of a second.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Default lifetime of a direct credential, in seconds.
const DIRECT_TTL_SECONDS: u64 = 24 * 3_600;
/// Shortest lifetime that Kubernetes' TokenRequest grants, in seconds.
const TTL_SECONDS_MIN: u64 = 600;

/// How the cluster can be reached, and with which credentials.
#[derive(Clone, Debug)]
pub struct AccessDescription {
    /// The cluster's endpoint, once there is one.
    pub endpoint: Option<String>,
    /// The network from which it can be reached.
    pub reachability: &'static str,
    /// Notes for the person who connects.
    pub notes: Vec<String>,
    /// The kinds of credentials on offer.
    pub kinds: Vec<AccessKind>,
    /// Delivered grants that are not revoked.
    pub grants: Vec<AccessGrantRecord>,
}

/// One kind of credential.
#[derive(Clone, Debug)]
pub struct AccessKind {
    /// The name of the kind: `direct` or `break-glass`.
    pub name: &'static str,
    /// `true` for the kind that is delivered if the request names none.
    pub default: bool,
    /// Default lifetime, in seconds.
    pub ttl_seconds: u64,
    /// Longest lifetime, in seconds.
    pub ttl_seconds_max: u64,
    /// Roles that it can carry.
    pub roles: &'static [OfferedRole],
    /// Description for people.
    pub note: &'static str,
}

/// A role that a kind of credential can carry.
#[derive(Clone, Copy, Debug)]
pub struct OfferedRole {
    /// Name of the role in the cluster.
    pub name: &'static str,
    /// The permission that the caller needs for it.
    pub permission: Permission,
    /// A command that works with a credential of this role; `FILE` stands for the credential's file.
    pub check: &'static str,
    /// The same command, once the credential is merged into the file that clients read.
    pub check_merged: &'static str,
}

/// The role that may do everything.
const ADMIN: &str = "cluster-admin";
/// The read-only role.
const VIEW: &str = "cluster-view";
/// The kind for emergencies.
const BREAK_GLASS: &str = "break-glass";

const ADMIN_ROLE: OfferedRole = OfferedRole {
    name: ADMIN,
    permission: Permission::AccessTake,
    check: "kubectl --kubeconfig FILE get nodes",
    check_merged: "kubectl get nodes",
};
/// It reads objects in namespaces, but no Nodes.
const VIEW_ROLE: OfferedRole = OfferedRole {
    name: VIEW,
    permission: Permission::AccessView,
    check: "kubectl --kubeconfig FILE get pods --all-namespaces",
    check_merged: "kubectl get pods --all-namespaces",
};
const EMERGENCY_ROLE: OfferedRole = OfferedRole { permission: Permission::AccessBreakGlass, ..ADMIN_ROLE };

const KINDS: [AccessKind; 2] = [
    AccessKind {
        name: "direct",
        default: true,
        ttl_seconds: DIRECT_TTL_SECONDS,
        ttl_seconds_max: DIRECT_SECONDS_MAX,
        roles: &[ADMIN_ROLE, VIEW_ROLE],
        note: "a token of a ServiceAccount; revoke it: gpuaas workload revoke-access GRANT",
    },
    AccessKind {
        name: BREAK_GLASS,
        default: false,
        ttl_seconds: BREAK_GLASS_SECONDS_MAX,
        ttl_seconds_max: BREAK_GLASS_SECONDS_MAX,
        roles: &[EMERGENCY_ROLE],
        note: "cluster-admin for at most an hour; needs a reason, is labelled and audited",
    },
];

/// Returns the kind of credential with this name.
pub fn kind(name: &str) -> Option<&'static AccessKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

/// A request for access.
#[derive(Clone, Debug, Default)]
pub struct DeliveryRequest {
    /// The kind; `None` for the default one.
    pub kind: Option<String>,
    /// The role; `None` for the highest one that the caller may take.
    pub role: Option<String>,
    /// Lifetime in seconds; `None` for the kind's default.
    pub ttl_seconds: Option<u64>,
    /// The reason; required for break-glass.
    pub reason: Option<String>,
}

impl DeliveryRequest {
    /// Refuses a reason that is not a single line of text.
    pub fn check_reason(&self) -> Result<(), CommandError> {
        self.reason.as_deref().map_or(Ok(()), |reason| check_line(Line::REASON, reason, "reason"))
    }
}

/// A delivered credential with its record.
pub struct DeliveredAccess {
    /// The record, whose id a revocation names.
    pub grant: AccessGrantRecord,
    /// The kubeconfig file.
    pub kubeconfig: Zeroizing<String>,
}

/// Describes how a workload can be reached.
pub async fn describe(engine: &Engine, caller: &Caller, id: WorkloadId) -> Result<AccessDescription, CommandError> {
    let mut reader = engine.store().read().await?;
    let workload = reader.workload(id).await?;
    caller.require_visible(workload.project, "workload", id)?;
    let grants = reader.access_grants(id).await?;
    let endpoint = workload.endpoint(Endpoint::API).map(str::to_owned);
    let needs_route = "the address is that of the server's node: your computer needs a route to it";
    let mut notes: Vec<String> = endpoint.iter().map(|_| needs_route.to_owned()).collect();
    notes.push("no storage class is installed, and there is no stable external endpoint".to_owned());
    Ok(AccessDescription {
        endpoint,
        reachability: "node-network",
        notes,
        kinds: KINDS.to_vec(),
        grants: grants.into_iter().filter(|grant| grant.revoked_at.is_none()).collect(),
    })
}

/// Creates a credential for the caller. Its record and audit record are written before it is delivered.
pub async fn deliver(
    engine: &Arc<Engine>,
    caller: &Caller,
    id: WorkloadId,
    ask: DeliveryRequest,
) -> Result<DeliveredAccess, CommandError> {
    // The highest role that the caller may take, for requests without one.
    let most = if caller.principal.may(Permission::AccessTake) { ADMIN } else { VIEW };
    let (kind, role, ttl_seconds) = validate(&ask, most)?;
    caller.require(role.permission)?;
    let rows = WorkloadRows::load(&mut engine.store().read().await?, id).await?;
    caller.require_visible(rows.workload.project, "workload", id)?;
    check_running(&rows.workload)?;
    let grant_id = AccessGrantId::generate(&*engine.ports().clock, &*engine.ports().entropy);
    let request = AccessRequest {
        name: format!("{}-{grant_id}", kind.name),
        kind: kind.name.to_owned(),
        role: role.name.to_owned(),
        ttl_seconds,
        requested_by: caller.principal.name.clone(),
    };
    let entry = engine.catalog().require(&rows.workload.app)?;
    // Before the row, so that a refusal here leaves nothing behind.
    let _permit = permit(engine, &rows.workload).await?;
    // The row first: after a crash, a grant names the ServiceAccount to delete.
    let grant = AccessGrantRecord {
        id: grant_id,
        workload: id,
        kind: kind.name.to_owned(),
        role: role.name.to_owned(),
        requested_by: caller.principal.name.clone(),
        reason: ask.reason,
        service_account: request.name.clone(),
        created_at: engine.ports().clock.now(),
        expires_at: engine.ports().clock.now().plus(Duration::from_secs(ttl_seconds)),
        revoked_at: None,
    };
    record(engine, caller, &rows.workload, &grant, (AuditAction::AccessDeliver, EventKind::AccessDelivered)).await?;
    let delivered: Delivered =
        with_timeout(engine, entry.effects.deliver_access(request, context(engine, &rows))).await?;
    Ok(DeliveredAccess {
        grant: AccessGrantRecord { expires_at: delivered.expires_at, ..grant },
        kubeconfig: delivered.kubeconfig,
    })
}

/// Revokes a delivered credential. Revoking twice has the effect of once.
pub async fn revoke(
    engine: &Arc<Engine>,
    caller: &Caller,
    id: AccessGrantId,
) -> Result<AccessGrantRecord, CommandError> {
    let mut reader = engine.store().read().await?;
    let grant = reader.access_grant(id).await?;
    let rows = WorkloadRows::load(&mut reader, grant.workload).await?;
    drop(reader);
    caller.require_visible(rows.workload.project, "access grant", id)?;
    caller.require(Permission::AccessTake)?;
    if grant.revoked_at.is_some() {
        return Ok(grant);
    }
    let revoked = AccessGrantRecord { revoked_at: Some(engine.ports().clock.now()), ..grant };
    // The cluster has no dry run, and its answer cannot be known without changing it.
    if caller.is_dry_run {
        return Ok(revoked);
    }
    let entry = engine.catalog().require(&rows.workload.app)?;
    let _permit = permit(engine, &rows.workload).await?;
    if rows.workload.lifecycle.holds_allocations() {
        with_timeout(engine, entry.effects.revoke_access(&revoked.service_account, context(engine, &rows))).await?;
    }
    record(engine, caller, &rows.workload, &revoked, (AuditAction::AccessRevoke, EventKind::AccessRevoked)).await?;
    Ok(revoked)
}

fn validate(
    ask: &DeliveryRequest,
    most: &str,
) -> Result<(&'static AccessKind, &'static OfferedRole, u64), CommandError> {
    let named = ask.kind.as_deref().map_or_else(|| KINDS.iter().find(|kind| kind.default), kind);
    let kind = named.ok_or_else(|| {
        CommandError::new(Code::AccessKindUnknown, "this kind of access does not exist")
            .about("kind")
            .then("use direct or break-glass")
    })?;
    let wanted = ask.role.as_deref().unwrap_or(most);
    let Some(role) = kind.roles.iter().find(|role| role.name == wanted) else {
        let names: Vec<&str> = kind.roles.iter().map(|role| role.name).collect();
        let detail = format!("the roles of {} access are {}", kind.name, names.join(" and "));
        return Err(CommandError::new(Code::FieldInvalid, detail).about("role").then("choose one of these"));
    };
    let ttl_seconds = ask.ttl_seconds.unwrap_or(kind.ttl_seconds);
    if !(TTL_SECONDS_MIN..=kind.ttl_seconds_max).contains(&ttl_seconds) {
        let range = format!("{} to {}", time(TTL_SECONDS_MIN), time(kind.ttl_seconds_max));
        return Err(CommandError::new(Code::FieldInvalid, format!("{} access must be valid for {range}", kind.name))
            .about("ttl_seconds"));
    }
    ask.check_reason()?;
    if kind.name == BREAK_GLASS && ask.reason.is_none() {
        return Err(CommandError::new(Code::FieldInvalid, "break-glass access needs a reason")
            .about("reason")
            .then("give a reason (field reason, flag --reason)"));
    }
    Ok((kind, role, ttl_seconds))
}

/// Formats a lifetime as `--ttl` takes it: `10m`, `1h` or `30d`.
fn time(seconds: u64) -> String {
    match seconds {
        days if days % 86_400 == 0 => format!("{}d", days / 86_400),
        hours if hours % 3_600 == 0 => format!("{}h", hours / 3_600),
        minutes => format!("{}m", minutes / 60),
    }
}

fn check_running(workload: &WorkloadRecord) -> Result<(), CommandError> {
    if workload.lifecycle == Lifecycle::Running {
        return Ok(());
    }
    let (name, lifecycle) = (&workload.name, workload.lifecycle);
    let refused = CommandError::new(Code::ClusterNotReady, format!("{name} has no usable cluster: it is {lifecycle}"));
    Err(match lifecycle {
        Lifecycle::Requested | Lifecycle::Deploying | Lifecycle::Starting => {
            refused.then(format!("wait until it runs: gpuaas workload show {name}"))
        }
        _ => refused.then(format!("see why: gpuaas workload show {name}")),
    })
}

fn context(engine: &Arc<Engine>, rows: &WorkloadRows) -> CallContext {
    CallContext::of(engine, rows.view(), engine.ports().clock.now().plus(CALL_TIMEOUT))
}

/// Waits until no other delivery or revocation for the workload is under way and a permit is free, or refuses.
async fn permit(engine: &Engine, workload: &WorkloadRecord) -> Result<CallPermit, CommandError> {
    let refused = || {
        let detail = format!("too many deliveries and revocations of access to {} are in progress", workload.name);
        CommandError::new(Code::RateLimited, detail).then(format!("try again after {} s", PERMIT_TIMEOUT.as_secs()))
    };
    let wait = engine.access_calls().enter(workload.project, workload.id).map_err(|QueueFull| refused())?;
    let over = engine.ports().runtime.sleep_until(engine.ports().clock.now().plus(PERMIT_TIMEOUT));
    tokio::select! {
        biased;
        permit = wait => permit.map_err(|QueueFull| refused()),
        () = over => Err(refused()),
    }
}

async fn with_timeout<T>(
    engine: &Engine,
    call: impl Future<Output = Result<T, TaskFailure>>,
) -> Result<T, CommandError> {
    let deadline = engine.ports().clock.now().plus(CALL_TIMEOUT);
    tokio::select! {
        biased;
        result = call => result.map_err(|failure| CommandError::new(failure.code, failure.message)),
        () = engine.ports().runtime.sleep_until(deadline) => {
            Err(CommandError::new(Code::ClusterUnreachable, "the cluster did not answer in time").then("try again"))
        }
    }
}

async fn record(
    engine: &Engine,
    caller: &Caller,
    workload: &WorkloadRecord,
    grant: &AccessGrantRecord,
    (action, event): (AuditAction, EventKind),
) -> Result<(), CommandError> {
    let mut tx = engine.store().begin().await?;
    if action == AuditAction::AccessDeliver {
        tx.insert_access_grant(grant).await?;
    } else {
        tx.revoke_access_grant(grant.id, grant.revoked_at.unwrap_or(grant.created_at)).await?;
    }
    let metadata = json!({
        "grant": grant.id, "kind": grant.kind, "role": grant.role, "reason": grant.reason,
        "expires_at": grant.expires_at.to_string(), "service_account": grant.service_account,
    });
    audit_workload(&mut tx, caller, action, workload, metadata.clone()).await?;
    let events = EventScope { project: workload.project, correlation: caller.correlation };
    events.event(&mut tx, event, "workload", workload.id.to_string(), metadata).await?;
    tx.commit().await?;
    Ok(())
}
