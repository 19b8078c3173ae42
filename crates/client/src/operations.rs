//! One method per API operation, named after the operation.

use gpuaas_api_types::{
    AccessAnswer, AccessGrant, AccessGranted, AddMembers, Allocation, App, Archive, Artifact, Authority, Bootstrap,
    BrowserSession, CreateAllocation, CreateProject, CreateServiceAccount, CreateServiceAccountToken, CreateToken,
    CreatedToken, Deploy, EnrollNode, Event, FixNode, FixedNode, ForceAuthority, ImportRelease, List, Member, Node,
    Operation, OperationDetail, Ping, PlacementOption, Preview, Project, RegisterNode, RegisteredNode, Replica,
    ReportAccepted, ReportWorkload, RequestAccess, SealingKey, ServiceAccount, SignInLink, SigningKey, StartOperation,
    Started, Task, Token, WhoAmI, Workload, WorkloadDetail, WorkloadDiff,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{error::ClientError, escape::escaped, transport::Client};

type ApiResult<T> = Result<T, ClientError>;

/// Returns a query with the parameters that have a value, percent-encoded.
pub(crate) fn query(parameters: &[(&str, Option<String>)]) -> String {
    let set = parameters.iter().filter_map(|(name, value)| value.as_ref().map(|value| (name, value)));
    let pairs: Vec<String> = set.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn service_account_path(project: Option<String>, name: &str, verb: &str) -> String {
    format!("/api/v1/service-accounts/{}{verb}{}", escaped(name), query(&[("project", project)]))
}

/// What a decommission may leave unproven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GiveUp {
    /// Names of unreachable nodes to give up.
    pub nodes: Vec<String>,
    /// Give up every member whose removal the last decommission could not prove.
    pub force: bool,
    /// Why, in one line; required if anything is given up.
    pub reason: Option<String>,
}

impl GiveUp {
    fn path(&self, project: Option<String>, workload: &str) -> String {
        let nodes = Some(self.nodes.join(",")).filter(|nodes| !nodes.is_empty());
        let force = self.force.then(|| "true".to_owned());
        let parameters = [("project", project), ("give_up", nodes), ("force", force), ("reason", self.reason.clone())];
        format!("/api/v1/workloads/{}{}", escaped(workload), query(&parameters))
    }
}

fn workload_path(project: Option<String>, workload: &str, verb: &str) -> String {
    format!("/api/v1/workloads/{}{verb}{}", escaped(workload), query(&[("project", project)]))
}

impl Client {
    /// Reads all pages of a list and returns them as one.
    async fn list_all<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, Option<String>)],
    ) -> ApiResult<List<T>> {
        let (mut items, mut cursor) = (Vec::new(), None);
        loop {
            let query = query(&[parameters, &[("cursor", cursor)]].concat());
            let page: List<T> = self.get(&format!("{path}{query}")).await?;
            items.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(List::new(items, None));
            }
        }
    }

    /// Lists the archives of one kind, or of all kinds.
    pub async fn list_archives(&self, kind: Option<String>) -> ApiResult<List<Archive>> {
        self.list_all("/api/v1/archives", &[("kind", kind)]).await
    }

    /// Returns an archive without its content.
    pub async fn get_archive(&self, id: &str) -> ApiResult<Archive> {
        self.get(&format!("/api/v1/archives/{}", escaped(id))).await
    }

    /// Returns the content of an archive, compressed with zstd.
    pub async fn read_archive(&self, id: &str) -> ApiResult<bytes::Bytes> {
        self.raw(&format!("/api/v1/archives/{}/content", escaped(id)), "application/zstd").await
    }

    /// Returns name, role and project of the token's holder.
    pub async fn whoami(&self) -> ApiResult<WhoAmI> {
        self.get("/api/v1/whoami").await
    }

    /// Lists the replicas of the control plane.
    pub async fn list_replicas(&self) -> ApiResult<List<Replica>> {
        self.list_all("/api/v1/replicas", &[]).await
    }

    /// Lists projects that the caller may see.
    pub async fn list_projects(&self) -> ApiResult<List<Project>> {
        self.list_all("/api/v1/projects", &[]).await
    }

    /// Creates a project.
    pub async fn create_project(&self, request: &CreateProject) -> ApiResult<Project> {
        self.post("/api/v1/projects", request).await
    }

    /// Deletes an empty project.
    pub async fn delete_project(&self, project: &str) -> ApiResult<Project> {
        self.delete(&format!("/api/v1/projects/{}", escaped(project))).await
    }

    /// Lists the tokens of a project, or all that the caller may see, without their secrets.
    pub async fn list_tokens(&self, project: Option<String>) -> ApiResult<List<Token>> {
        self.list_all("/api/v1/tokens", &[("project", project)]).await
    }

    /// Exchanges this client's one-time token for a platform admin's token.
    pub async fn bootstrap(&self, request: &Bootstrap) -> ApiResult<CreatedToken> {
        self.post("/api/v1/bootstrap", request).await
    }

    /// Creates a token.
    pub async fn create_token(&self, request: &CreateToken) -> ApiResult<CreatedToken> {
        self.post("/api/v1/tokens", request).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: &str) -> ApiResult<Token> {
        self.delete(&format!("/api/v1/tokens/{}", escaped(id))).await
    }

    /// Lists the sessions of browsers that this client's token began.
    pub async fn list_sessions(&self) -> ApiResult<List<BrowserSession>> {
        self.list_all("/api/v1/sessions", &[]).await
    }

    /// Revokes a session of this client's token.
    pub async fn revoke_session(&self, id: &str) -> ApiResult<BrowserSession> {
        self.delete(&format!("/api/v1/sessions/{}", escaped(id))).await
    }

    /// Issues a one-time link that signs a browser in with this client's token.
    pub async fn create_sign_in_link(&self) -> ApiResult<SignInLink> {
        self.post("/api/v1/sign-in-links", &json!({})).await
    }

    /// Lists the service accounts of a project.
    pub async fn list_service_accounts(&self, project: Option<String>) -> ApiResult<List<ServiceAccount>> {
        self.list_all("/api/v1/service-accounts", &[("project", project)]).await
    }

    /// Creates a service account.
    pub async fn create_service_account(&self, request: &CreateServiceAccount) -> ApiResult<ServiceAccount> {
        self.post("/api/v1/service-accounts", request).await
    }

    /// Deletes a service account and revokes its tokens.
    pub async fn delete_service_account(&self, project: Option<String>, name: &str) -> ApiResult<ServiceAccount> {
        self.delete(&service_account_path(project, name, "")).await
    }

    /// Creates a token for a service account.
    pub async fn create_service_account_token(
        &self,
        project: Option<String>,
        name: &str,
        request: &CreateServiceAccountToken,
    ) -> ApiResult<CreatedToken> {
        self.post(&service_account_path(project, name, "/tokens"), request).await
    }

    /// Lists every present and former signing key.
    pub async fn list_signing_keys(&self) -> ApiResult<List<SigningKey>> {
        self.get("/api/v1/signing-keys").await
    }

    /// Starts the rotation of the task-signing key.
    pub async fn rotate_signing_keys(&self) -> ApiResult<SigningKey> {
        self.post("/api/v1/signing-keys/rotate", &json!({})).await
    }

    /// Returns the id of the sealing key in use, and the progress of its rotation.
    pub async fn get_sealing_key(&self) -> ApiResult<SealingKey> {
        self.get("/api/v1/sealing-key").await
    }

    /// Puts the next sealing key into use. Every replica must have loaded it before.
    pub async fn rotate_sealing_key(&self) -> ApiResult<SealingKey> {
        self.post("/api/v1/sealing-key/rotate", &json!({})).await
    }

    /// Lists every certificate authority, oldest first.
    pub async fn list_authorities(&self) -> ApiResult<List<Authority>> {
        self.get("/api/v1/authorities").await
    }

    /// Starts the rotation of the certificate authority.
    pub async fn rotate_authority(&self) -> ApiResult<Authority> {
        self.post("/api/v1/authorities/rotate", &json!({})).await
    }

    /// Continues the authority's rotation without the nodes that delay it.
    pub async fn force_authority(&self, request: &ForceAuthority) -> ApiResult<Authority> {
        self.post("/api/v1/authorities/force", request).await
    }

    /// Revokes a task-signing key immediately.
    pub async fn revoke_signing_key(&self, key: &str) -> ApiResult<SigningKey> {
        self.post(&format!("/api/v1/signing-keys/{}/revoke", escaped(key)), &json!({})).await
    }

    /// Lists nodes, optionally filtered by state and connectivity.
    pub async fn list_nodes(&self, state: Option<String>, connectivity: Option<String>) -> ApiResult<List<Node>> {
        self.list_all("/api/v1/nodes", &[("state", state), ("connectivity", connectivity)]).await
    }

    /// Registers a machine.
    pub async fn register_node(&self, request: &RegisterNode) -> ApiResult<RegisteredNode> {
        self.post("/api/v1/nodes", request).await
    }

    /// Returns a node by name or id.
    pub async fn get_node(&self, node: &str) -> ApiResult<Node> {
        self.get(&format!("/api/v1/nodes/{}", escaped(node))).await
    }

    /// Returns the present ETag of a node, for [`Client::with_if_match`].
    pub async fn node_etag(&self, node: &str) -> ApiResult<String> {
        self.etag(&format!("/api/v1/nodes/{}", escaped(node))).await
    }

    /// Issues a new enrollment string.
    pub async fn issue_enrollment(&self, node: &str, request: &EnrollNode) -> ApiResult<RegisteredNode> {
        self.post(&format!("/api/v1/nodes/{}/enrollment", escaped(node)), request).await
    }

    /// Sends a signed no-op task and waits for its result.
    pub async fn ping_node(&self, node: &str) -> ApiResult<Ping> {
        self.post(&format!("/api/v1/nodes/{}/ping", escaped(node)), &json!({})).await
    }

    /// Resets a node.
    pub async fn reset_node(&self, node: &str, request: &EnrollNode) -> ApiResult<RegisteredNode> {
        self.post(&format!("/api/v1/nodes/{}/reset", escaped(node)), request).await
    }

    /// Passes a node that a tenant left to the reimage hook.
    pub async fn reimage_node(&self, node: &str) -> ApiResult<Node> {
        self.post(&format!("/api/v1/nodes/{}/reimage", escaped(node)), &json!({})).await
    }

    /// Removes a node from use permanently.
    pub async fn retire_node(&self, node: &str) -> ApiResult<Node> {
        self.post(&format!("/api/v1/nodes/{}/retire", escaped(node)), &json!({})).await
    }

    /// Deletes a retired node.
    pub async fn delete_node(&self, node: &str) -> ApiResult<Node> {
        self.delete(&format!("/api/v1/nodes/{}", escaped(node))).await
    }

    /// Inspects a node and waits for the result.
    pub async fn inspect_node(&self, node: &str) -> ApiResult<Node> {
        self.post(&format!("/api/v1/nodes/{}/inspect", escaped(node)), &json!({})).await
    }

    /// Applies a safe fix on a node, named by the fix or by the finding that it removes.
    pub async fn fix_node(&self, node: &str, request: &FixNode) -> ApiResult<FixedNode> {
        self.post(&format!("/api/v1/nodes/{}/fix", escaped(node)), request).await
    }

    /// Lists allocations, optionally filtered by project and state.
    pub async fn list_allocations(
        &self,
        project: Option<String>,
        state: Option<String>,
    ) -> ApiResult<List<Allocation>> {
        self.list_all("/api/v1/allocations", &[("project", project), ("state", state)]).await
    }

    /// Allocates a node to a project.
    pub async fn create_allocation(&self, request: &CreateAllocation) -> ApiResult<Allocation> {
        self.post("/api/v1/allocations", request).await
    }

    /// Returns an allocation.
    pub async fn get_allocation(&self, id: &str) -> ApiResult<Allocation> {
        self.get(&format!("/api/v1/allocations/{}", escaped(id))).await
    }

    /// Returns the present ETag of an allocation, for [`Client::with_if_match`].
    pub async fn allocation_etag(&self, id: &str) -> ApiResult<String> {
        self.etag(&format!("/api/v1/allocations/{}", escaped(id))).await
    }

    /// Releases an allocation.
    pub async fn release_allocation(&self, id: &str) -> ApiResult<Allocation> {
        self.delete(&format!("/api/v1/allocations/{}", escaped(id))).await
    }

    /// Lists tasks, optionally filtered by node and operation.
    pub async fn list_tasks(&self, node: Option<String>, operation: Option<String>) -> ApiResult<List<Task>> {
        self.list_all("/api/v1/tasks", &[("node", node), ("operation", operation)]).await
    }

    /// Returns a task.
    pub async fn get_task(&self, id: &str) -> ApiResult<Task> {
        self.get(&format!("/api/v1/tasks/{}", escaped(id))).await
    }

    /// Returns one page of events after number `after`, of a project or of the platform.
    pub async fn list_events(&self, project: Option<String>, after: u64) -> ApiResult<List<Event>> {
        let query = query(&[("project", project), ("after", Some(after.to_string()))]);
        self.get(&format!("/api/v1/events{query}")).await
    }

    /// Lists the apps of the catalog.
    pub async fn list_apps(&self) -> ApiResult<List<App>> {
        self.get("/api/v1/apps").await
    }

    /// Returns an app.
    pub async fn get_app(&self, slug: &str) -> ApiResult<App> {
        self.get(&format!("/api/v1/apps/{}", escaped(slug))).await
    }

    /// Lists the project's allocations as placements for the app.
    pub async fn placement_options(&self, project: Option<String>, slug: &str) -> ApiResult<List<PlacementOption>> {
        self.list_all(&format!("/api/v1/apps/{}/placement-options", escaped(slug)), &[("project", project)]).await
    }

    /// Lists imported files.
    pub async fn list_artifacts(&self) -> ApiResult<List<Artifact>> {
        self.list_all("/api/v1/artifacts", &[]).await
    }

    /// Imports a release.
    pub async fn import_artifacts(&self, request: &ImportRelease) -> ApiResult<List<Artifact>> {
        self.post("/api/v1/artifacts", request).await
    }

    /// Returns the page of workloads after `cursor`, optionally filtered by project and section.
    pub async fn list_workloads(
        &self,
        project: Option<String>,
        section: Option<String>,
        cursor: Option<String>,
    ) -> ApiResult<List<Workload>> {
        let query = query(&[("project", project), ("section", section), ("cursor", cursor)]);
        self.get(&format!("/api/v1/workloads{query}")).await
    }

    /// Deploys an app.
    pub async fn deploy_workload(&self, request: &Deploy) -> ApiResult<Started> {
        self.post("/api/v1/workloads", request).await
    }

    /// Returns the plan of a deployment, or every reason against it. Changes nothing.
    pub async fn preview_workload(&self, request: &Deploy) -> ApiResult<Preview> {
        self.clone().with_dry_run().post("/api/v1/workloads", request).await
    }

    /// Returns a workload with its members, by name in a project or by id.
    pub async fn get_workload(&self, project: Option<String>, workload: &str) -> ApiResult<WorkloadDetail> {
        self.get(&workload_path(project, workload, "")).await
    }

    /// Compares a workload's desired state with what is observed. Changes nothing.
    pub async fn diff_workload(&self, project: Option<String>, workload: &str) -> ApiResult<WorkloadDiff> {
        self.get(&workload_path(project, workload, "/diff")).await
    }

    /// Returns the present ETag of a workload, for [`Client::with_if_match`].
    pub async fn workload_etag(&self, project: Option<String>, workload: &str) -> ApiResult<String> {
        self.etag(&workload_path(project, workload, "")).await
    }

    /// Lists the members of a workload.
    pub async fn list_members(&self, project: Option<String>, workload: &str) -> ApiResult<List<Member>> {
        self.list_all(&format!("/api/v1/workloads/{}/members", escaped(workload)), &[("project", project)]).await
    }

    /// Returns the plan of adding members. Changes nothing.
    pub async fn preview_members(
        &self,
        project: Option<String>,
        workload: &str,
        request: &AddMembers,
    ) -> ApiResult<Preview> {
        self.clone().with_dry_run().post(&workload_path(project, workload, "/members"), request).await
    }

    /// Adds members.
    pub async fn add_members(
        &self,
        project: Option<String>,
        workload: &str,
        request: &AddMembers,
    ) -> ApiResult<Started> {
        self.post(&workload_path(project, workload, "/members"), request).await
    }

    /// Starts an operation with parameters on a workload. With a digest, only the plan with this digest.
    pub async fn start_operation(
        &self,
        project: Option<String>,
        workload: &str,
        request: &StartOperation,
        plan_digest: Option<String>,
    ) -> ApiResult<Started> {
        let client = self.clone().with_plan_digest(plan_digest);
        client.post(&workload_path(project, workload, "/operations"), request).await
    }

    /// Returns the plan of an operation with parameters. Changes nothing.
    pub async fn preview_operation(
        &self,
        project: Option<String>,
        workload: &str,
        request: &StartOperation,
    ) -> ApiResult<Preview> {
        self.clone().with_dry_run().post(&workload_path(project, workload, "/operations"), request).await
    }

    /// Reports phase, progress and health of members, as the workload's controller.
    pub async fn report_workload(
        &self,
        project: Option<String>,
        workload: &str,
        report: &ReportWorkload,
    ) -> ApiResult<ReportAccepted> {
        self.put(&workload_path(project, workload, "/report"), report).await
    }

    /// Removes a workload from all its nodes.
    pub async fn decommission_workload(&self, project: Option<String>, workload: &str) -> ApiResult<Started> {
        self.delete(&workload_path(project, workload, "")).await
    }

    /// Removes a workload from all its nodes; members that are given up are removed without proof.
    pub async fn decommission_giving_up(
        &self,
        project: Option<String>,
        workload: &str,
        give_up: &GiveUp,
    ) -> ApiResult<Started> {
        self.delete(&give_up.path(project, workload)).await
    }

    /// Returns the plan of such a removal. Changes nothing.
    pub async fn preview_giving_up(
        &self,
        project: Option<String>,
        workload: &str,
        give_up: &GiveUp,
    ) -> ApiResult<Preview> {
        self.clone().with_dry_run().delete(&give_up.path(project, workload)).await
    }

    /// Returns the plan of removing a workload from all its nodes. Changes nothing.
    pub async fn preview_decommission(&self, project: Option<String>, workload: &str) -> ApiResult<Preview> {
        self.clone().with_dry_run().delete(&workload_path(project, workload, "")).await
    }

    /// Returns the plan of repeating the latest operation of a workload. Changes nothing.
    pub async fn preview_resume(&self, project: Option<String>, workload: &str) -> ApiResult<Preview> {
        self.clone().with_dry_run().post(&workload_path(project, workload, "/resume"), &json!({})).await
    }

    /// Repeats the latest operation of a workload if it did not succeed.
    pub async fn resume_workload(&self, project: Option<String>, workload: &str) -> ApiResult<Started> {
        self.post(&workload_path(project, workload, "/resume"), &json!({})).await
    }

    /// Returns the endpoint of the workload's cluster, with the available and the delivered credentials.
    pub async fn get_access(&self, project: Option<String>, workload: &str) -> ApiResult<AccessAnswer> {
        self.get(&workload_path(project, workload, "/access")).await
    }

    /// Revokes a delivered credential.
    pub async fn revoke_access(&self, grant: &str) -> ApiResult<AccessGrant> {
        self.delete(&format!("/api/v1/access-grants/{}", escaped(grant))).await
    }

    /// Delivers a credential for the workload's cluster.
    pub async fn deliver_kubeconfig(
        &self,
        project: Option<String>,
        workload: &str,
        ask: &RequestAccess,
    ) -> ApiResult<AccessGranted> {
        self.post(&workload_path(project, workload, "/kubeconfig"), ask).await
    }

    /// Lists operations, optionally filtered by project, workload (by name in that project, or by id) and state.
    pub async fn list_operations(
        &self,
        project: Option<String>,
        workload: Option<String>,
        state: Option<String>,
    ) -> ApiResult<List<Operation>> {
        self.list_all("/api/v1/operations", &[("project", project), ("workload", workload), ("state", state)]).await
    }

    /// Returns an operation with its steps.
    pub async fn get_operation(&self, id: &str) -> ApiResult<OperationDetail> {
        self.get(&format!("/api/v1/operations/{}", escaped(id))).await
    }

    /// Requests the cancellation of an operation.
    pub async fn cancel_operation(&self, id: &str) -> ApiResult<Operation> {
        self.post(&format!("/api/v1/operations/{}/cancel", escaped(id)), &json!({})).await
    }

    /// Returns one page of a list as raw JSON. Parameters without a value are left out.
    pub async fn read_page(&self, list: &str, parameters: &[(&str, Option<String>)]) -> ApiResult<serde_json::Value> {
        self.get(&format!("/api/v1/{list}{}", query(parameters))).await
    }

    /// Returns a plain-text response, for example of `/metrics`.
    pub async fn read_text(&self, path: &str) -> ApiResult<String> {
        self.text(path).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_url_characters_are_escaped() {
        assert_eq!(query(&[("a", Some("x y/ü".into())), ("b", None)]), "?a=x%20y%2F%C3%BC");
        assert_eq!(query(&[("a", None)]), "");
    }
}
