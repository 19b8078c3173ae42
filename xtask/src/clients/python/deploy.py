"""Deploys a workload with the client that openapi-python-client generates, and waits until it is running."""

import os
import ssl
import time
from uuid import UUID

from gpuaas_client import AuthenticatedClient
from gpuaas_client.api.access import whoami
from gpuaas_client.api.workloads import deploy_workload, get_workload
from gpuaas_client.models import (
    Lifecycle,
    Permission,
    Rke2Config,
    Rke2ConfigNodeLabels,
    Rke2Deploy,
    Rke2DeployApp,
    Rke2Placement,
    Started,
    WhoAmI,
    WorkloadDetail,
)

ENDED = {
    Lifecycle.STOPPING,
    Lifecycle.STOPPED,
    Lifecycle.DECOMMISSIONING,
    Lifecycle.DECOMMISSIONED,
    Lifecycle.FAILED,
    Lifecycle.CANCELLED,
}

name = os.environ["GPUAAS_WORKLOAD"]
client = AuthenticatedClient(
    base_url=os.environ["GPUAAS_URL"],
    token=os.environ["GPUAAS_TOKEN"],
    verify_ssl=ssl.create_default_context(cafile=os.environ["GPUAAS_CA_FILE"]),
)

caller = whoami.sync(client=client)
assert isinstance(caller, WhoAmI), caller
assert Permission.WORKLOADS_WRITE in caller.permissions, caller

deploy = Rke2Deploy(
    app=Rke2DeployApp.RKE2,
    name=name,
    placement=Rke2Placement(server_allocation_id=UUID(os.environ["GPUAAS_ALLOCATION"])),
    config=Rke2Config(node_labels=Rke2ConfigNodeLabels.from_dict({"rack": "b12"})),
)
started = deploy_workload.sync(client=client, body=deploy)
assert isinstance(started, Started), started

while True:
    detail = get_workload.sync(name, client=client)
    assert isinstance(detail, WorkloadDetail), detail
    workload = detail.workload
    # Values of an enumeration, not texts.
    assert isinstance(workload.lifecycle, Lifecycle), workload
    assert workload.lifecycle not in ENDED, workload
    if workload.lifecycle is Lifecycle.RUNNING:
        break
    time.sleep(0.2)
print(f"{name} is {workload.lifecycle} ({workload.health}), requested {workload.created_at.isoformat()}")
