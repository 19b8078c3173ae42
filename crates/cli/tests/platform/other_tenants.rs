//! Requests for another project's resources by their real ids: the answer equals that for an id that never existed, byte for
//! byte except for the id and the correlation id.

use std::collections::BTreeMap;

use gpuaas_api_types::{CreateProject, CreateServiceAccount, RequestAccess};
use gpuaas_model::Role;
use http::Method;
use serde_json::{Value, json};

use crate::{
    operations::{UNUSED_ID, operations},
    raw::{HttpResponse, bearer, send},
    world::{PROJECT, Platform, WAIT_MAX, token_request},
};

const OTHER_PROJECT: &str = "others";

/// Ids of resources that [`PROJECT`] really has, by kind, and the name of a member.
struct TenantResources {
    ids: BTreeMap<&'static str, String>,
    member: String,
}

async fn create_resources(platform: &Platform) -> TenantResources {
    let client = platform.client();
    let started = client.deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
    assert_eq!(platform.await_end(&started).await.operation.state, "succeeded");
    let operation = started.operation.id.clone();
    let ask = RequestAccess::default();
    let grant = client.deliver_kubeconfig(Some(PROJECT.into()), "train", &ask).await.expect("delivered").grant;
    let task = client.list_tasks(None, Some(operation.clone())).await.expect("listed").items.remove(0).id;
    let node = client.get_node("demo-1").await.expect("a node").id;
    let token = token_request("theirs", "viewer", Some(PROJECT));
    let token = client.create_token(&token).await.expect("made");
    let with = json!({ "token": token.secret }).to_string();
    let headers = [("content-type", "application/json")];
    let session = send(platform, Method::POST, "/api/v1/sessions", &headers, with).await.body["id"].clone();
    let account = CreateServiceAccount {
        name: "robot-of-research-0000-7000-8000-001".into(),
        role: Role::Viewer.to_string(),
        workload: None,
        project: Some(PROJECT.into()),
    };
    let account = client.create_service_account(&account).await.expect("made").name;
    let project = client.list_projects().await.expect("listed").items.into_iter().find(|of| of.name == PROJECT);
    let member = client.list_members(Some(PROJECT.into()), &started.workload.id).await.expect("listed");
    let ids = BTreeMap::from([
        ("workload", started.workload.id.clone()),
        ("operation", operation),
        ("grant", grant),
        ("task", task),
        ("node", node),
        ("token", token.token.id),
        ("session", session.as_str().expect("an id").to_owned()),
        ("project", project.expect("one").id),
        ("allocation", platform.allocation(1).await),
        ("service account", account),
    ]);
    TenantResources { ids, member: member.items[0].name.clone() }
}

impl TenantResources {
    /// Returns the id for one parameter of a path.
    fn id(&self, template: &str, part: &str) -> &str {
        let kind = match part {
            "id" if template.contains("/operations/") => "operation",
            "id" if template.contains("/tasks/") => "task",
            "id" if template.contains("/tokens/") => "token",
            "id" if template.contains("/sessions/") => "session",
            "id" if template.contains("/access-grants/") => "grant",
            "id" if template.contains("/allocations/") => "allocation",
            "name" if template.contains("/service-accounts/") => "service account",
            part => part,
        };
        self.ids.get(kind).unwrap_or_else(|| panic!("{template}: no id for {{{part}}}"))
    }
}

/// Returns status, headers and body of an answer without `date`, with the id and the correlation id replaced.
fn plain(answer: &HttpResponse, id: &str) -> (u16, Vec<(String, String)>, String) {
    let correlation = answer.headers["correlation-id"].to_str().expect("a text").to_owned();
    let without = |text: &str| {
        text.replace(&correlation, "CORRELATION").replace(id, "ID").replace(&id.to_uppercase(), "ID IN UPPER CASE")
    };
    let headers = answer.headers.iter().filter(|(name, _)| *name != "date");
    let headers = headers.map(|(name, value)| (name.to_string(), without(value.to_str().expect("a text")))).collect();
    (answer.status, headers, without(&answer.body.to_string()))
}

async fn token(platform: &Platform, role: Role) -> String {
    let ask = token_request(&format!("another {role}"), role.as_str(), Some(OTHER_PROJECT));
    format!("Bearer {}", platform.client().create_token(&ask).await.expect("made").secret)
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_another_project_look_absent() {
    let platform = Platform::with_release(1, &[]).await;
    let theirs = create_resources(&platform).await;
    let project = CreateProject { name: OTHER_PROJECT.to_owned() };
    platform.client().create_project(&project).await.expect("made");
    let roles = [Role::ProjectAdmin, Role::ProjectMember, Role::Viewer];
    for role in roles {
        // Checked before any request by id: a project's audit also shows the refused requests of its own users.
        assert_nothing_leaks(&platform, &token(&platform, role).await, &theirs).await;
    }
    let mut asked = 0;
    for role in roles {
        let token = token(&platform, role).await;
        let ask = async |method: &Method, path: &str, body: &str| {
            let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
            send(&platform, method.clone(), path, &headers, body.to_owned()).await
        };
        let same = async |what: &str,
                          method: &Method,
                          path: &dyn Fn(&str) -> String,
                          id: &str,
                          body: &dyn Fn(&str) -> String| {
            let real = ask(method, &path(id), &body(id)).await;
            let none = ask(method, &path(UNUSED_ID), &body(UNUSED_ID)).await;
            assert_eq!(plain(&real, id), plain(&none, UNUSED_ID), "{what} as {role}");
            let [upper, unused] = [id, UNUSED_ID].map(str::to_uppercase);
            let (spelled, none) =
                (ask(method, &path(&upper), &body(&upper)).await, ask(method, &path(&unused), &body(&unused)).await);
            assert_eq!(plain(&spelled, id), plain(&none, UNUSED_ID), "{what} as {role}, in upper case");
            real
        };
        for operation in operations() {
            if !operation.needs.is_some_and(|needed| role.allows(needed)) {
                continue;
            }
            let body = |_: &str| match &operation.body {
                Some(_) => Value::Object(operation.valid_body()).to_string(),
                None => String::new(),
            };
            // By path.
            let parts: Vec<&str> = operation.template.split('/').filter_map(|part| part.strip_prefix('{')).collect();
            if let Some(part) = parts.first().map(|part| part.trim_end_matches('}')).filter(|part| *part != "slug") {
                let path =
                    |id: &str| operation.path(|of| if of == part { id.to_owned() } else { theirs.member.clone() });
                let id = theirs.id(&operation.template, part);
                let answer = same(&operation.name, &operation.method, &path, id, &body).await;
                assert_eq!((answer.status, answer.code()), (404, "not_found"), "{}: {answer:?}", operation.name);
                asked += 1;
            }
            // By query.
            for name in ["project", "workload", "node", "operation"] {
                if operation.query.contains_key(name) {
                    let path = |id: &str| format!("{}?{name}={id}", operation.path(|_| "rke2".to_owned()));
                    let answer = same(&operation.name, &operation.method, &path, &theirs.ids[name], &body).await;
                    assert!(!answer.body.to_string().contains("train"), "{}: {answer:?}", operation.name);
                    asked += 1;
                }
            }
        }
        if role.allows(gpuaas_model::Permission::WorkloadsWrite) {
            for place in ["server_allocation_id", "agent_allocation_ids"] {
                let body = |id: &str| {
                    let named = if place.ends_with('s') { json!([id]) } else { json!(id) };
                    json!({ "app": "rke2", "name": "mine", "placement": { place: named } }).to_string()
                };
                let path = |_: &str| "/api/v1/workloads".to_owned();
                let answer = same(place, &Method::POST, &path, &theirs.ids["allocation"], &body).await;
                assert_eq!((answer.status, answer.code()), (422, "placement_invalid"), "{answer:?}");
                assert!(answer.body["errors"].to_string().contains("allocation_unknown"), "{answer:?}");
                asked += 1;
            }
        }
    }
    println!("    other tenants: {asked} requests compared");
    assert!(asked > 40, "{asked}");
    let after = platform.client().get_workload(Some(PROJECT.into()), "train").await.expect("it is there").workload;
    assert_eq!((after.lifecycle.as_str(), after.generation), ("running", 1), "the workload was changed");
}

/// Asserts that no list shows a stranger any of these ids, and that the project's event stream is refused as not found.
async fn assert_nothing_leaks(platform: &Platform, token: &str, theirs: &TenantResources) {
    let listed = send(platform, Method::GET, "/api/v1/workloads", &[("authorization", token)], "").await;
    let counts = listed.body["counts"].as_object().expect("counts");
    assert!(!counts.is_empty() && counts.values().all(|count| count == 0), "counts of another project: {counts:?}");
    for operation in operations().iter().filter(|operation| !operation.mutates() && !operation.template.contains('{')) {
        let answer = send(platform, Method::GET, &operation.template, &[("authorization", token)], "").await;
        let text = answer.body.to_string();
        for (kind, id) in &theirs.ids {
            assert!(!text.contains(id), "{} shows a {kind} of another project: {text}", operation.name);
        }
    }
    for query in [format!("?project={}", theirs.ids["project"]), format!("?project={PROJECT}")] {
        let headers = [("authorization", token), ("accept", "text/event-stream")];
        let path = format!("/api/v1/events{query}");
        let asked = send(platform, Method::GET, &path, &headers, "");
        let answer = tokio::time::timeout(WAIT_MAX, asked).await.expect("the stream of another project is not refused");
        assert_eq!((answer.status, answer.code()), (404, "not_found"), "the stream of another project: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workload_changes_only_with_its_current_etag() {
    let platform = Platform::with_release(1, &[]).await;
    let started = platform.client().deploy_workload(&platform.deployment("train", &[]).await).await.expect("accepted");
    let token = bearer(&platform);
    let path = format!("/api/v1/workloads/{}", started.workload.id);
    let ask = async |method: Method, path: &str, header: (&str, &str)| {
        send(&platform, method, path, &[("authorization", token.as_str()), header], "").await
    };
    let early = ask(Method::GET, &path, ("accept", "*/*")).await.headers["etag"].to_str().expect("a text").to_owned();
    assert_eq!(platform.await_end(&started).await.operation.state, "succeeded");
    let seen = ask(Method::GET, &path, ("if-none-match", &early)).await;
    assert_eq!(seen.status, 200, "it runs by now: {seen:?}");
    let present = seen.headers["etag"].to_str().expect("a text").to_owned();
    assert_eq!(ask(Method::GET, &path, ("if-none-match", &present)).await.status, 304);
    for (method, path) in [(Method::DELETE, path.clone()), (Method::POST, format!("{path}/resume"))] {
        let stale = ask(method, &path, ("if-match", &early)).await;
        assert_eq!((stale.status, stale.code()), (412, "precondition_failed"), "{path}: {stale:?}");
    }
    assert_eq!(platform.client().list_operations(None, None, None).await.expect("listed").items.len(), 1);
    let taken = ask(Method::DELETE, &path, ("if-match", &present)).await;
    assert_eq!(taken.status, 202, "{taken:?}");
}
