//! Delivery and revocation of access to clusters.

use std::sync::atomic::Ordering;

use gpuaas_engine::{
    Caller,
    commands::access::{self, DeliveryRequest},
};
use gpuaas_model::{AuditAction, Code, Coded, EventKind, Permission, Principal, Role};

use crate::{engines::admin, kit::milestone, site::Site};

#[tokio::test(flavor = "multi_thread")]
async fn access_revoked_twice_is_recorded_once() {
    let site = Site::of(1).await;
    let workload = site.deploy_and_wait(|_| vec![milestone("ready")]).await.workload.id;
    let engine = &site.engines.engine;
    let Ok(delivered) = access::deliver(engine, &admin(), workload, DeliveryRequest::default()).await else {
        panic!("it is delivered")
    };
    let once = access::revoke(engine, &admin(), delivered.grant.id).await.expect("revoked");
    assert_eq!(access::revoke(engine, &admin(), delivered.grant.id).await.expect("it is revoked already"), once);
    assert_eq!(site.engines.kit.revoked.lock().unwrap()[..], [delivered.grant.service_account]);
    assert_eq!(site.engines.recorded(AuditAction::AccessRevoke).await, 1);
    assert_eq!(site.count_events(EventKind::AccessRevoked).await, 1);
    let described = access::describe(engine, &admin(), workload).await.expect("described");
    assert!(described.grants.is_empty(), "{:?}", described.grants);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_delivery_to_a_silent_cluster_is_refused_and_leaves_no_record() {
    let site = Site::of(1).await;
    let workload = site.deploy_and_wait(|_| vec![milestone("ready")]).await.workload.id;
    let engine = &site.engines.engine;
    let deliver = async || access::deliver(engine, &admin(), workload, DeliveryRequest::default()).await.map(drop);
    site.engines.kit.is_silent.store(true, Ordering::SeqCst);
    let (first, second) = tokio::join!(deliver(), deliver());
    let (first, second) = (first.expect_err("it does not answer"), second.expect_err("it does not answer"));
    // Either call may have come first.
    let (waited, refused) = if first.code() == Code::RateLimited { (second, first) } else { (first, second) };
    assert_eq!(waited.code(), Code::ClusterUnreachable, "{waited}");
    assert_eq!(refused.code(), Code::RateLimited, "{refused}");
    assert!(refused.next().is_some_and(|next| next.contains("5 s")), "{:?}", refused.next());
    assert_eq!(site.engines.recorded(AuditAction::AccessDeliver).await, 1, "a refusal leaves no record");
    let described = access::describe(engine, &admin(), workload).await.expect("described");
    assert_eq!(described.grants.len(), 1, "a refusal leaves no grant");
    // One call is under way, four wait and time out, and the rest are refused at once.
    let many: Vec<_> = futures::future::join_all((0..20).map(|_| deliver())).await;
    let codes = many.into_iter().map(|refused| refused.expect_err("no call is answered").code());
    assert_eq!(codes.filter(|code| *code == Code::ClusterUnreachable).count(), 1);
    site.engines.kit.is_silent.store(false, Ordering::SeqCst);
    deliver().await.expect("it answers again");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeconfig_is_delivered_only_as_the_role_allows() {
    let site = Site::of(1).await;
    let deployed = site.deploy_and_wait(|_| vec![milestone("ready")]).await;
    let (engine, workload) = (&site.engines.engine, deployed.workload.id);
    let ask = |kind: &str, role: Option<&str>| DeliveryRequest {
        kind: Some(kind.to_owned()),
        role: role.map(str::to_owned),
        reason: Some("the certificates have expired".to_owned()),
        ..DeliveryRequest::default()
    };
    let kinds = [
        (Permission::AccessView, ask("direct", Some("cluster-view"))),
        (Permission::AccessTake, ask("direct", Some("cluster-admin"))),
        (Permission::AccessBreakGlass, ask("break-glass", Some("cluster-admin"))),
    ];
    let mut delivered = 0;
    for &role in Role::ALL {
        let project = (!role.is_of_platform()).then_some(deployed.workload.project);
        let caller = Caller { principal: Principal { role, project, ..admin().principal }, ..admin() };
        for (permission, ask) in kinds.clone() {
            let answer = access::deliver(engine, &caller, workload, ask).await;
            match role.allows(permission) {
                true => delivered += usize::from(answer.is_ok()),
                false => {
                    let code = answer.map(drop).expect_err("refused").code();
                    assert_eq!(code, Code::Forbidden, "{role} {permission}");
                }
            }
        }
    }
    // For a platform admin, a project admin, a member and a viewer.
    assert_eq!(delivered, 3 + 3 + 2 + 1);
    assert_eq!(site.engines.recorded(AuditAction::AccessDeliver).await, delivered);
}
