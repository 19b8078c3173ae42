//! Access to clusters that is delivered and withdrawn.

use gpuaas_engine::commands::access::{self, AccessAsk};
use gpuaas_model::{AuditAction, EventKind};

use crate::{kit::milestone, site::Site, world::admin};

#[tokio::test(flavor = "multi_thread")]
async fn access_that_is_withdrawn_twice_is_withdrawn_and_recorded_once() {
    let site = Site::of(1).await;
    let workload = site.deployed(|_| vec![milestone("ready")]).await.workload.id;
    let engine = &site.world.engine;
    let Ok(delivered) = access::deliver(engine, &admin(), workload, AccessAsk::default()).await else {
        panic!("it is delivered")
    };
    let once = access::revoke(engine, &admin(), delivered.grant.id).await.expect("withdrawn");
    assert_eq!(access::revoke(engine, &admin(), delivered.grant.id).await.expect("it is"), once);
    assert_eq!(site.world.kit.withdrawn.lock().unwrap()[..], [delivered.grant.service_account]);
    assert_eq!(site.world.recorded(AuditAction::AccessRevoke).await, 1);
    assert_eq!(site.told(EventKind::AccessRevoked).await, 1);
    let described = access::describe(engine, &admin(), workload).await.expect("described");
    assert!(described.grants.is_empty(), "{:?}", described.grants);
}
