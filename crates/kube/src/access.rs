//! Access for people: one ServiceAccount per delivery, so that withdrawing one is deleting it and nobody else notices.
//!
//! Own ServiceAccounts and TokenRequests need no controller-manager, so access can be delivered as soon as the apiserver is
//! ready. The built-in ClusterRole `view`, though, gets its rules from the controller-manager's aggregation.
//!
//! Order: account, binding, the right as the authorizer sees it, token. A crash in between leaves a named account that nobody holds a token of; granting again
//! completes it, withdrawing removes it. The caller's row, written before, knows the name.

use std::{fmt, str::FromStr, time::Duration};

use http::{Request, header::CONTENT_TYPE};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::{ClusterRoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Resource,
    api::{Api, DeleteParams, PostParams},
};
use secrecy::SecretString;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::{
    answer,
    cluster::{Cluster, WhoAmI},
    error::{KubeError, answered},
    kubeconfig::{Kubeconfig, KubeconfigText},
};

/// Where our ServiceAccounts live, apart from everything of the tenant.
pub const ACCESS_NAMESPACE: &str = "gpuaas-access";
/// The apiserver refuses tokens that live shorter than ten minutes.
pub const TOKEN_SECONDS_MIN: u64 = 600;
/// No delivery lives longer than thirty days; callers set lower bounds per kind.
pub const TOKEN_SECONDS_MAX: u64 = 30 * 24 * 60 * 60;
/// Longest wait until the authorizer knows a binding. It takes milliseconds, and on a loaded server seconds for the first `view`.
const RIGHT_WITHIN: Duration = Duration::from_secs(15);
/// The pause between two questions whether it does. There is nothing to watch: what it knows is its own cache.
const RIGHT_ASKED_EVERY: Duration = Duration::from_millis(100);
/// The apiserver may round; beyond this an expiry is not the one that was asked for.
const EXPIRY_SLACK_SECONDS: i64 = 60;
/// The account with which a delivery is tried out. One per cluster: trying twice is the same as trying once.
const PROBE_ACCOUNT: &str = "delivery-probe";

/// What a delivered credential may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRole {
    /// Everything.
    ClusterAdmin,
    /// Reading all but secrets and, as Kubernetes defines `view`, objects of the cluster itself.
    ClusterView,
}

impl AccessRole {
    /// The role's name at the platform.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterAdmin => "cluster-admin",
            Self::ClusterView => "cluster-view",
        }
    }

    /// The ClusterRole it is bound to.
    const fn cluster_role(self) -> &'static str {
        match self {
            Self::ClusterAdmin => "cluster-admin",
            Self::ClusterView => "view",
        }
    }

    /// What it is known by: no lesser role allows that, in any namespace.
    fn example(self) -> ResourceAttributes {
        let of = |verb: &str, group: &str, resource: &str| ResourceAttributes {
            verb: Some(verb.into()),
            group: Some(group.into()),
            resource: Some(resource.into()),
            ..ResourceAttributes::default()
        };
        match self {
            Self::ClusterAdmin => of("*", "*", "*"),
            Self::ClusterView => of("get", "", "configmaps"),
        }
    }
}

impl FromStr for AccessRole {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::ClusterAdmin, Self::ClusterView].into_iter().find(|role| role.as_str() == text).ok_or(())
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessTerms {
    /// Names the ServiceAccount: a DNS label, one per delivery.
    pub name: String,
    /// Its right.
    pub role: AccessRole,
    /// `direct` or `break-glass`; becomes a label.
    pub kind: String,
    /// Who asked; becomes a label.
    pub requested_by: String,
    /// Life of the token, from [`TOKEN_SECONDS_MIN`] to [`TOKEN_SECONDS_MAX`].
    pub seconds: u64,
    /// Names cluster and context in the file: the workload's name.
    pub context: String,
}

/// A credential, ready to be handed over.
pub struct AccessGrant {
    /// The file. Never stored, never logged.
    pub kubeconfig: Zeroizing<String>,
    /// What [`Cluster::withdraw_access`] takes.
    pub service_account: String,
    /// Milliseconds since the Unix epoch, as the apiserver says.
    pub expires_at_ms: i64,
}

impl fmt::Debug for AccessGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessGrant").field("service_account", &self.service_account).finish_non_exhaustive()
    }
}

/// What withdrawing found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawn {
    /// Whether the ServiceAccount was still there.
    pub service_account: bool,
    /// Whether its binding was.
    pub binding: bool,
}

impl Cluster {
    /// Makes a ServiceAccount with that right and a token for it, which is good at once. Granting the same terms again gives a second token
    /// of the same account. Ends with [`KubeError::NotReady`] when the apiserver does not come to know the right in time.
    pub async fn grant_access(&self, terms: &AccessTerms) -> Result<AccessGrant, KubeError> {
        check(terms)?;
        self.ensure_account(&terms.name, labels(terms)).await?;
        self.ensure_binding(terms).await?;
        self.await_right(terms).await?;
        let (token, expires_at_ms) = self.request_token(&terms.name, terms.seconds).await?;
        Ok(AccessGrant {
            kubeconfig: self.kubeconfig_for(&terms.context, &terms.name, &token),
            service_account: terms.name.clone(),
            expires_at_ms,
        })
    }

    /// Deletes the ServiceAccount, which ends its tokens, and its binding. An apiserver may remember a token that it has just
    /// seen for 10 s more, but the right is gone with the binding. Withdrawing what is gone succeeds.
    pub async fn withdraw_access(&self, service_account: &str) -> Result<Withdrawn, KubeError> {
        check_name(service_account)?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), ACCESS_NAMESPACE);
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let account = deleted(answer::in_time(accounts.delete(service_account, &DeleteParams::default())).await)?;
        let binding =
            deleted(answer::in_time(bindings.delete(&binding_name(service_account), &DeleteParams::default())).await)?;
        Ok(Withdrawn { service_account: account, binding })
    }

    /// Tries a delivery out: makes an account without any right and a kubeconfig for it, uses that file, deletes the account.
    /// Returns whom the apiserver took the file's bearer for.
    pub async fn try_delivery(&self, context: &str) -> Result<WhoAmI, KubeError> {
        self.ensure_account(PROBE_ACCOUNT, vec![("gpuaas/access-kind".into(), "probe".into())]).await?;
        let seen = self.use_probe(context).await;
        self.withdraw_access(PROBE_ACCOUNT).await?;
        seen
    }

    async fn use_probe(&self, context: &str) -> Result<WhoAmI, KubeError> {
        let (token, _) = self.request_token(PROBE_ACCOUNT, TOKEN_SECONDS_MIN).await?;
        let file = self.kubeconfig_for(context, PROBE_ACCOUNT, &token);
        self.with_credentials(&Kubeconfig::parse(file.as_bytes())?)?.whoami().await
    }

    fn kubeconfig_for(&self, context: &str, user: &str, token: &SecretString) -> Zeroizing<String> {
        let server = self.endpoint.to_string();
        KubeconfigText { server: &server, ca_pem: &self.ca_pem, context, user, token }.render()
    }

    async fn ensure_account(&self, name: &str, labels: Vec<(String, String)>) -> Result<(), KubeError> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = Namespace { metadata: metadata(ACCESS_NAMESPACE, vec![]), ..Namespace::default() };
        created(&namespaces, &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), ACCESS_NAMESPACE);
        let account = ServiceAccount {
            metadata: metadata(name, labels),
            // The token is asked for; nothing else may get one by mounting it.
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        };
        created(&accounts, &account).await.map(drop)
    }

    /// A binding's role cannot be changed, so one with another role, left by somebody, is replaced.
    async fn ensure_binding(&self, terms: &AccessTerms) -> Result<(), KubeError> {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let binding = binding(terms);
        if created(&bindings, &binding).await? {
            return Ok(());
        }
        let name = binding_name(&terms.name);
        let found = answer::in_time(bindings.get(&name)).await?;
        if found.role_ref == binding.role_ref && found.subjects == binding.subjects {
            return Ok(());
        }
        deleted(answer::in_time(bindings.delete(&name, &DeleteParams::default())).await)?;
        answer::in_time(bindings.create(&PostParams::default(), &binding)).await.map(drop)
    }

    /// Waits until the authorizer allows what the binding says, and no more: it learns of bindings by a watch of its own, and whoever used a
    /// delivery before that would be refused, or could do what a replaced binding said.
    async fn await_right(&self, terms: &AccessTerms) -> Result<(), KubeError> {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(RIGHT_ASKED_EVERY);
        loop {
            ticks.tick().await;
            let (may, may_all) =
                tokio::try_join!(self.may(terms, terms.role), self.may(terms, AccessRole::ClusterAdmin))?;
            if may && may_all == (terms.role == AccessRole::ClusterAdmin) {
                return Ok(());
            }
            if began.elapsed() >= RIGHT_WITHIN {
                let last = format!("without the right of ClusterRole {}", terms.role.cluster_role());
                return Err(KubeError::NotReady { last, seconds: RIGHT_WITHIN.as_secs() });
            }
        }
    }

    /// Whether the account of these terms may do what `role` is known by.
    async fn may(&self, terms: &AccessTerms, role: AccessRole) -> Result<bool, KubeError> {
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = answer::in_time(reviews.create(&PostParams::default(), &review(terms, role))).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    async fn request_token(&self, account: &str, seconds: u64) -> Result<(SecretString, i64), KubeError> {
        let expiration_seconds = Some(i64::try_from(seconds).unwrap_or(i64::MAX));
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds, ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let body = serde_json::to_vec(&request).map_err(|error| KubeError::Refusal(error.to_string()))?;
        let request = Request::post(format!("/api/v1/namespaces/{ACCESS_NAMESPACE}/serviceaccounts/{account}/token"))
            .header(CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| KubeError::Refusal(error.to_string()))?;
        // Not through the library's typed call, which logs a body that it cannot read.
        let (status, body) = answer::raw(&self.client, request).await?;
        if !status.is_success() {
            return Err(answered(status.as_u16(), String::from_utf8_lossy(&body)));
        }
        let answer: TokenRequest =
            serde_json::from_slice(&body).map_err(|_| KubeError::Unreadable("not a TokenRequest".into()))?;
        let issued = answer.metadata.creation_timestamp.map(|time| time.0.as_second());
        let status = answer.status.ok_or_else(|| KubeError::Unreadable("a TokenRequest without a token".into()))?;
        let expires = status.expiration_timestamp.0;
        let asked = i64::try_from(seconds).unwrap_or(i64::MAX);
        if issued.is_some_and(|issued| expires.as_second() - issued > asked.saturating_add(EXPIRY_SLACK_SECONDS)) {
            return Err(KubeError::Refusal(format!(
                "the apiserver gave a token that outlives the {seconds} s asked for"
            )));
        }
        Ok((SecretString::from(status.token), expires.as_millisecond()))
    }
}

fn check(terms: &AccessTerms) -> Result<(), KubeError> {
    check_name(&terms.name)?;
    if !(TOKEN_SECONDS_MIN..=TOKEN_SECONDS_MAX).contains(&terms.seconds) {
        let seconds = terms.seconds;
        return Err(KubeError::Refusal(format!(
            "a token lives {TOKEN_SECONDS_MIN} s to {TOKEN_SECONDS_MAX} s; {seconds} s were asked for"
        )));
    }
    Ok(())
}

/// A DNS label: it becomes part of paths, names and usernames.
fn check_name(name: &str) -> Result<(), KubeError> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let label =
        (1..=63).contains(&name.len()) && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-');
    if label { Ok(()) } else { Err(KubeError::Refusal(format!("{name:?} cannot name a ServiceAccount"))) }
}

fn binding_name(account: &str) -> String {
    format!("{ACCESS_NAMESPACE}:{account}")
}

/// The question whether the account of these terms may do what `role` is known by. Groups are those that every ServiceAccount has.
fn review(terms: &AccessTerms, role: AccessRole) -> SubjectAccessReview {
    let groups =
        ["system:serviceaccounts", &format!("system:serviceaccounts:{ACCESS_NAMESPACE}"), "system:authenticated"];
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{ACCESS_NAMESPACE}:{}", terms.name)),
            groups: Some(groups.map(str::to_owned).to_vec()),
            resource_attributes: Some(role.example()),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

fn binding(terms: &AccessTerms) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: metadata(&binding_name(&terms.name), labels(terms)),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".into(),
            kind: "ClusterRole".into(),
            name: terms.role.cluster_role().into(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".into(),
            name: terms.name.clone(),
            namespace: Some(ACCESS_NAMESPACE.into()),
            api_group: None,
        }]),
    }
}

fn labels(terms: &AccessTerms) -> Vec<(String, String)> {
    vec![
        ("gpuaas/access-kind".into(), label_value(&terms.kind)),
        ("gpuaas/access-role".into(), terms.role.as_str().into()),
        ("gpuaas/requested-by".into(), label_value(&terms.requested_by)),
    ]
}

fn metadata(name: &str, labels: Vec<(String, String)>) -> ObjectMeta {
    let ours = ("app.kubernetes.io/managed-by".to_owned(), "gpuaas".to_owned());
    ObjectMeta {
        name: Some(name.into()),
        labels: Some(labels.into_iter().chain([ours]).collect()),
        ..ObjectMeta::default()
    }
}

/// Any text as a label's value: what Kubernetes does not take becomes `-`, and 63 characters are kept.
pub fn label_value(text: &str) -> String {
    let kept: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).take(63).collect();
    kept.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// Whether it was made now; `false` when it was there.
async fn created<K>(api: &Api<K>, object: &K) -> Result<bool, KubeError>
where
    K: Resource + Clone + serde::Serialize + serde::de::DeserializeOwned + fmt::Debug,
{
    match answer::in_time(api.create(&PostParams::default(), object)).await {
        Ok(_) => Ok(true),
        // A namespace that is going away also answers 409, but its reason is kept in the text.
        Err(KubeError::Conflict(text)) if text.contains("already exists") => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether it was there.
fn deleted<T>(answer: Result<T, KubeError>) -> Result<bool, KubeError> {
    match answer {
        Ok(_) => Ok(true),
        Err(KubeError::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_a_label_value() {
        assert_eq!(label_value("https://idp.example/ sub=Ann Lee"), "https---idp.example--sub-Ann-Lee");
        assert_eq!(label_value("(x)"), "x");
        assert_eq!(label_value("…"), "");
        assert_eq!(label_value(&"a".repeat(200)).len(), 63);
    }

    #[test]
    fn a_name_that_would_leave_its_path_is_refused() {
        for bad in ["", "a/b", "../x", "A", "-a", "a-", "a.b", &"a".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name("access-0198c0de-7a3b").is_ok());
    }

    #[test]
    fn only_known_roles_are_roles() {
        assert_eq!("cluster-admin".parse(), Ok(AccessRole::ClusterAdmin));
        assert_eq!("cluster-view".parse(), Ok(AccessRole::ClusterView));
        assert_eq!("admin".parse::<AccessRole>(), Err(()));
    }
}
