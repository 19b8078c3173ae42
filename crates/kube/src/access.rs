//! Access for people: one ServiceAccount per delivery, so that deleting it revokes that delivery and no other.
//!
//! ServiceAccounts and TokenRequests need no controller-manager, so access can be delivered as soon as the apiserver is ready. But the
//! built-in ClusterRole `view` gets its rules from the controller-manager's aggregation.
//!
//! Order: account, binding, check that the authorizer applies the binding, token. A crash in between leaves a named account for which no
//! token was issued; granting again completes it, and withdrawing removes it. The caller stores the name in its row before the call.

use std::{fmt, str::FromStr, time::Duration};

use http::StatusCode;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::{
    calls::{Answer, Call},
    cluster::{Cluster, WhoAmI},
    error::KubeError,
    json::{self, AtMost},
    kubeconfig::{Kubeconfig, KubeconfigText},
};

/// API path of ClusterRoleBindings.
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// API group of roles.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Most subjects that are read of a binding for comparison with the platform's, which has one.
const SUBJECTS_MAX: usize = 16;
/// Namespace of the platform's ServiceAccounts, separate from all of the tenant's.
pub const ACCESS_NAMESPACE: &str = "gpuaas-access";
/// Shortest life of a token; the apiserver refuses tokens of less than ten minutes.
pub const TOKEN_SECONDS_MIN: u64 = 600;
/// Longest life of a token: thirty days. Callers set lower limits per kind.
pub const TOKEN_SECONDS_MAX: u64 = 30 * 24 * 60 * 60;
/// Longest wait until the authorizer applies a binding. It takes milliseconds, and seconds for the first `view` on a loaded server.
const PERMISSION_TIMEOUT: Duration = Duration::from_secs(15);
/// Interval of access reviews during that wait. The authorizer's cache cannot be watched.
const PERMISSION_CHECK_EVERY: Duration = Duration::from_millis(100);
/// Most by which a token may outlive the requested time, because the apiserver may round.
const EXPIRY_SLACK_SECONDS: i64 = 60;
/// The account that tests a delivery. One per cluster: the test is idempotent.
const PROBE_ACCOUNT: &str = "delivery-probe";

/// The rights of a delivered credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRole {
    /// Every right.
    ClusterAdmin,
    /// Read access to everything but Secrets and cluster-scoped objects, as Kubernetes defines `view`.
    ClusterView,
}

impl AccessRole {
    /// Returns the role's name in the platform's API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterAdmin => "cluster-admin",
            Self::ClusterView => "cluster-view",
        }
    }

    /// The ClusterRole that the binding names.
    const fn cluster_role(self) -> &'static str {
        match self {
            Self::ClusterAdmin => "cluster-admin",
            Self::ClusterView => "view",
        }
    }

    /// Returns an access that identifies the role: no lesser role allows it in any namespace.
    fn sample_attributes(self) -> Value {
        let of =
            |verb: &str, group: &str, resource: &str| json!({ "verb": verb, "group": group, "resource": resource });
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

/// The parameters of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessTerms {
    /// Name of the ServiceAccount: a DNS label, one per delivery.
    pub name: String,
    /// The role that the credential gets.
    pub role: AccessRole,
    /// `direct` or `break-glass`; becomes a label.
    pub kind: String,
    /// The requesting user; becomes a label.
    pub requested_by: String,
    /// Life of the token in seconds, from [`TOKEN_SECONDS_MIN`] to [`TOKEN_SECONDS_MAX`].
    pub seconds: u64,
    /// Name of cluster and context in the kubeconfig: the workload's name.
    pub context: String,
}

/// A delivered credential.
pub struct AccessGrant {
    /// The kubeconfig. Never stored, never logged.
    pub kubeconfig: Zeroizing<String>,
    /// The ServiceAccount's name, for [`Cluster::withdraw_access`].
    pub service_account: String,
    /// Expiry of the token according to the apiserver, in milliseconds since the Unix epoch.
    pub expires_at_ms: i64,
}

impl fmt::Debug for AccessGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessGrant").field("service_account", &self.service_account).finish_non_exhaustive()
    }
}

/// The objects that a withdrawal deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawn {
    /// True if the ServiceAccount existed.
    pub service_account: bool,
    /// True if its binding existed.
    pub binding: bool,
}

impl Cluster {
    /// Creates a ServiceAccount with this role and a token for it, which works at once. A repeated call with the same terms returns a
    /// second token of the same account. Fails with [`KubeError::NotReady`] if the authorizer does not apply the role in time.
    pub async fn grant_access(&self, terms: &AccessTerms) -> Result<AccessGrant, KubeError> {
        check(terms)?;
        self.ensure_account(&terms.name, labels(terms)).await?;
        self.ensure_binding(terms).await?;
        self.await_permission(terms).await?;
        let (token, expires_at_ms) = self.request_token(&terms.name, terms.seconds).await?;
        Ok(AccessGrant {
            kubeconfig: self.kubeconfig_for(&terms.context, &terms.name, &token),
            service_account: terms.name.clone(),
            expires_at_ms,
        })
    }

    /// Deletes the ServiceAccount, which ends its tokens, and its binding. The apiserver may accept a recently used token for another 10 s,
    /// but its rights end with the binding. Succeeds if both are already deleted.
    pub async fn withdraw_access(&self, service_account: &str) -> Result<Withdrawn, KubeError> {
        check_name(service_account)?;
        let account = self.delete(format!("{}/{service_account}", accounts())).await?;
        let binding = self.delete(binding_path(service_account)).await?;
        Ok(Withdrawn { service_account: account, binding })
    }

    /// Tests a delivery: creates an account without rights and a kubeconfig for it, uses that kubeconfig, and deletes the account. Returns
    /// the user as which the apiserver authenticated it.
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
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata(ACCESS_NAMESPACE, vec![]) });
        self.create("/api/v1/namespaces", namespace).await?;
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, labels),
            // Tokens are issued by request only, not by mounting them into a pod.
            "automountServiceAccountToken": false,
        });
        self.create(&accounts(), account).await.map(drop)
    }

    /// Creates the binding. A binding's role cannot be changed, so an existing binding with another role or other subjects is replaced.
    async fn ensure_binding(&self, terms: &AccessTerms) -> Result<(), KubeError> {
        if self.create(BINDINGS, binding(terms)).await? {
            return Ok(());
        }
        let path = binding_path(&terms.name);
        let found: FoundBinding = self.calls.make(Call::get(path.as_str())).await?.object()?;
        if found.matches(terms) {
            return Ok(());
        }
        self.delete(path).await?;
        self.calls.make(Call::post(BINDINGS, binding(terms))).await?.success().map(drop)
    }

    /// Creates an object; returns `false` if it already exists.
    async fn create(&self, target: &str, object: Value) -> Result<bool, KubeError> {
        let answer = self.calls.make(Call::post(target, object)).await?;
        // A namespace that is being deleted also answers 409.
        if answer.status == StatusCode::CONFLICT && exists_already(&answer) {
            return Ok(false);
        }
        answer.success().map(|_| true)
    }

    /// Waits until the authorizer allows exactly what the binding grants. The authorizer receives bindings through its own watch; a
    /// delivery that is used before that would be refused, or would still have the rights of a replaced binding.
    async fn await_permission(&self, terms: &AccessTerms) -> Result<(), KubeError> {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(PERMISSION_CHECK_EVERY);
        loop {
            ticks.tick().await;
            let is_admin = terms.role == AccessRole::ClusterAdmin;
            if self.is_allowed(terms, terms.role).await?
                && (is_admin || !self.is_allowed(terms, AccessRole::ClusterAdmin).await?)
            {
                return Ok(());
            }
            if began.elapsed() >= PERMISSION_TIMEOUT {
                let last = format!("the permissions of ClusterRole {} are not effective", terms.role.cluster_role());
                return Err(KubeError::NotReady { last, seconds: PERMISSION_TIMEOUT.as_secs() });
            }
        }
    }

    /// Returns true if the account of these terms may do the access that identifies `role`.
    async fn is_allowed(&self, terms: &AccessTerms, role: AccessRole) -> Result<bool, KubeError> {
        let call = Call::post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review(terms, role));
        let review: FoundReview = self.calls.make(call).await?.object()?;
        Ok(review.status.allowed)
    }

    async fn request_token(&self, account: &str, seconds: u64) -> Result<(SecretString, i64), KubeError> {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": seconds },
        });
        let call = Call::post(format!("{}/{account}/token", accounts()), request);
        let answer = self.calls.make(call).await?.success()?;
        // The answer is not quoted in the error: it may contain a token in another place.
        let found: FoundToken =
            json::read(&answer.body).map_err(|_| KubeError::Unreadable("not a TokenRequest with a token".into()))?;
        let (issued, expires) = (found.metadata.creation_timestamp, found.status.expiration_timestamp);
        let requested = i64::try_from(seconds).unwrap_or(i64::MAX);
        if issued.is_some_and(|issued| {
            expires.as_second() - issued.as_second() > requested.saturating_add(EXPIRY_SLACK_SECONDS)
        }) {
            return Err(KubeError::Refusal(format!(
                "the apiserver issued a token that outlives the requested {seconds} s"
            )));
        }
        Ok((found.status.token, expires.as_millisecond()))
    }
}

/// Returns true if the object already exists, according to the machine-readable `reason`; the message is only text.
fn exists_already(answer: &Answer) -> bool {
    #[derive(Deserialize)]
    struct Status {
        reason: String,
    }
    json::read::<Status>(&answer.body).is_ok_and(|status| status.reason == "AlreadyExists")
}

/// The parts of a ClusterRoleBinding that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FoundBinding {
    role_ref: FoundRole,
    #[serde(default)]
    subjects: AtMost<FoundSubject, SUBJECTS_MAX>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FoundRole {
    api_group: String,
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct FoundSubject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

impl FoundBinding {
    /// Returns true if the binding gives the account of these terms their role, and has no other subject.
    fn matches(&self, terms: &AccessTerms) -> bool {
        let role = &self.role_ref;
        let is_role = role.api_group == RBAC && role.kind == "ClusterRole" && role.name == terms.role.cluster_role();
        let is_ours = |subject: &FoundSubject| {
            subject.kind == "ServiceAccount" && subject.name == terms.name && subject.namespace == ACCESS_NAMESPACE
        };
        is_role && matches!(self.subjects.0.as_slice(), [only] if is_ours(only))
    }
}

/// The parts of a SubjectAccessReview that are read.
#[derive(Deserialize)]
struct FoundReview {
    #[serde(default)]
    status: FoundReviewStatus,
}

#[derive(Default, Deserialize)]
struct FoundReviewStatus {
    #[serde(default)]
    allowed: bool,
}

/// The parts of a TokenRequest that are read.
#[derive(Deserialize)]
struct FoundToken {
    #[serde(default)]
    metadata: FoundTokenMetadata,
    status: FoundTokenStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FoundTokenMetadata {
    creation_timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FoundTokenStatus {
    token: SecretString,
    expiration_timestamp: Timestamp,
}

fn check(terms: &AccessTerms) -> Result<(), KubeError> {
    check_name(&terms.name)?;
    if !(TOKEN_SECONDS_MIN..=TOKEN_SECONDS_MAX).contains(&terms.seconds) {
        let seconds = terms.seconds;
        return Err(KubeError::Refusal(format!(
            "invalid token lifetime {seconds} s: use {TOKEN_SECONDS_MIN} s to {TOKEN_SECONDS_MAX} s"
        )));
    }
    Ok(())
}

/// Checks for a DNS label: the name becomes part of paths, names and usernames.
fn check_name(name: &str) -> Result<(), KubeError> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let label =
        (1..=63).contains(&name.len()) && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-');
    if label { Ok(()) } else { Err(KubeError::Refusal(format!("{name:?} is not a valid name of a ServiceAccount"))) }
}

/// Returns the API path of the platform's ServiceAccounts.
fn accounts() -> String {
    format!("/api/v1/namespaces/{ACCESS_NAMESPACE}/serviceaccounts")
}

fn binding_name(account: &str) -> String {
    format!("{ACCESS_NAMESPACE}:{account}")
}

fn binding_path(account: &str) -> String {
    format!("{BINDINGS}/{}", binding_name(account))
}

/// Returns a review of the access that identifies `role`, for the account of these terms. The groups are those of every ServiceAccount.
fn review(terms: &AccessTerms, role: AccessRole) -> Value {
    let groups =
        ["system:serviceaccounts", &format!("system:serviceaccounts:{ACCESS_NAMESPACE}"), "system:authenticated"];
    let user = format!("system:serviceaccount:{ACCESS_NAMESPACE}:{}", terms.name);
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": { "user": user, "groups": groups, "resourceAttributes": role.sample_attributes() },
    })
}

fn binding(terms: &AccessTerms) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": metadata(&binding_name(&terms.name), labels(terms)),
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": terms.role.cluster_role() },
        "subjects": [{ "kind": "ServiceAccount", "name": terms.name, "namespace": ACCESS_NAMESPACE }],
    })
}

fn labels(terms: &AccessTerms) -> Vec<(String, String)> {
    vec![
        ("gpuaas/access-kind".into(), label_value(&terms.kind)),
        ("gpuaas/access-role".into(), terms.role.as_str().into()),
        ("gpuaas/requested-by".into(), label_value(&terms.requested_by)),
    ]
}

fn metadata(name: &str, labels: Vec<(String, String)>) -> Value {
    let ours = ("app.kubernetes.io/managed-by".to_owned(), "gpuaas".to_owned());
    let labels: serde_json::Map<String, Value> =
        labels.into_iter().chain([ours]).map(|(label, value)| (label, value.into())).collect();
    json!({ "name": name, "labels": labels })
}

/// Turns any text into a label's value: replaces characters that Kubernetes does not allow by `-`, and keeps at most 63 characters.
pub fn label_value(text: &str) -> String {
    let kept: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).take(63).collect();
    kept.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
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
    fn binding_with_another_role_or_subject_does_not_match() {
        let terms = AccessTerms {
            name: "access-1".into(),
            role: AccessRole::ClusterView,
            kind: "direct".into(),
            requested_by: "ann".into(),
            seconds: 600,
            context: "prod".into(),
        };
        let matches = |change: &dyn Fn(&mut Value)| {
            let mut found = binding(&terms);
            change(&mut found);
            serde_json::from_value::<FoundBinding>(found).unwrap().matches(&terms)
        };
        assert!(matches(&|_| {}));
        assert!(!matches(&|found| found["roleRef"]["name"] = "cluster-admin".into()));
        assert!(!matches(&|found| found["roleRef"]["kind"] = "Role".into()));
        assert!(!matches(&|found| found["subjects"][0]["name"] = "access-2".into()));
        assert!(!matches(&|found| found["subjects"][0]["namespace"] = "default".into()));
        assert!(!matches(&|found| found["subjects"][0]["kind"] = "User".into()));
        assert!(!matches(&|found| found["subjects"] = Value::Null));
        assert!(!matches(&|found| {
            let mut more = found["subjects"][0].clone();
            more["name"] = "access-3".into();
            found["subjects"].as_array_mut().unwrap().push(more);
        }));
    }

    #[test]
    fn only_known_roles_are_roles() {
        assert_eq!("cluster-admin".parse(), Ok(AccessRole::ClusterAdmin));
        assert_eq!("cluster-view".parse(), Ok(AccessRole::ClusterView));
        assert_eq!("admin".parse::<AccessRole>(), Err(()));
    }
}
