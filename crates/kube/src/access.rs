//! Access for people: one ServiceAccount per delivery, so that withdrawing one is deleting it and nobody else notices.
//!
//! Own ServiceAccounts and TokenRequests need no controller-manager, so access can be delivered as soon as the apiserver is
//! ready. The built-in ClusterRole `view`, though, gets its rules from the controller-manager's aggregation.
//!
//! Order: account, binding, the right as the authorizer sees it, token. A crash in between leaves a named account that nobody holds a token of; granting again
//! completes it, withdrawing removes it. The caller's row, written before, knows the name.

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

/// Where bindings of ClusterRoles are.
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// Whom roles belong to.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Most subjects of a binding that is compared with ours, which has one.
const SUBJECTS_MAX: usize = 16;
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
    fn example(self) -> Value {
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
        let account = self.delete(format!("{}/{service_account}", accounts())).await?;
        let binding = self.delete(binding_path(service_account)).await?;
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
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata(ACCESS_NAMESPACE, vec![]) });
        self.create("/api/v1/namespaces", namespace).await?;
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, labels),
            // The token is asked for; nothing else may get one by mounting it.
            "automountServiceAccountToken": false,
        });
        self.create(&accounts(), account).await.map(drop)
    }

    /// A binding's role cannot be changed, so one with another role, left by somebody, is replaced.
    async fn ensure_binding(&self, terms: &AccessTerms) -> Result<(), KubeError> {
        if self.create(BINDINGS, binding(terms)).await? {
            return Ok(());
        }
        let path = binding_path(&terms.name);
        let found: FoundBinding = self.calls.make(Call::get(path.as_str())).await?.object()?;
        if found.says(terms) {
            return Ok(());
        }
        self.delete(path).await?;
        self.calls.make(Call::post(BINDINGS, binding(terms))).await?.success().map(drop)
    }

    /// Whether it was made now; `false` when it was there.
    async fn create(&self, target: &str, object: Value) -> Result<bool, KubeError> {
        let answer = self.calls.make(Call::post(target, object)).await?;
        // A namespace that is going away also answers 409.
        if answer.status == StatusCode::CONFLICT && exists_already(&answer) {
            return Ok(false);
        }
        answer.success().map(|_| true)
    }

    /// Whether it was there.
    async fn delete(&self, target: String) -> Result<bool, KubeError> {
        match self.calls.make(Call::delete(target)).await?.success() {
            Ok(_) => Ok(true),
            Err(KubeError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until the authorizer allows what the binding says, and no more: it learns of bindings by a watch of its own, and whoever used a
    /// delivery before that would be refused, or could do what a replaced binding said.
    async fn await_right(&self, terms: &AccessTerms) -> Result<(), KubeError> {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(RIGHT_ASKED_EVERY);
        loop {
            ticks.tick().await;
            let is_admin = terms.role == AccessRole::ClusterAdmin;
            if self.may(terms, terms.role).await? && (is_admin || !self.may(terms, AccessRole::ClusterAdmin).await?) {
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
        // What it holds instead is quoted nowhere: it may be a token in another place.
        let found: FoundToken =
            json::read(&answer.body).map_err(|_| KubeError::Unreadable("not a TokenRequest with its token".into()))?;
        let (issued, expires) = (found.metadata.creation_timestamp, found.status.expiration_timestamp);
        let asked = i64::try_from(seconds).unwrap_or(i64::MAX);
        if issued
            .is_some_and(|issued| expires.as_second() - issued.as_second() > asked.saturating_add(EXPIRY_SLACK_SECONDS))
        {
            return Err(KubeError::Refusal(format!(
                "the apiserver gave a token that outlives the {seconds} s asked for"
            )));
        }
        Ok((found.status.token, expires.as_millisecond()))
    }
}

/// Whether an object of that name exists; Kubernetes' own reason, where the message is in words.
fn exists_already(answer: &Answer) -> bool {
    #[derive(Deserialize)]
    struct Told {
        reason: String,
    }
    json::read::<Told>(&answer.body).is_ok_and(|told| told.reason == "AlreadyExists")
}

/// What is read of a ClusterRoleBinding.
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
    /// Whether it gives the account of these terms their role, and nobody else anything.
    fn says(&self, terms: &AccessTerms) -> bool {
        let role = &self.role_ref;
        let is_role = role.api_group == RBAC && role.kind == "ClusterRole" && role.name == terms.role.cluster_role();
        let is_ours = |subject: &FoundSubject| {
            subject.kind == "ServiceAccount" && subject.name == terms.name && subject.namespace == ACCESS_NAMESPACE
        };
        is_role && matches!(self.subjects.0.as_slice(), [only] if is_ours(only))
    }
}

/// What is read of a SubjectAccessReview.
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

/// What is read of a TokenRequest.
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

/// Where our ServiceAccounts are.
fn accounts() -> String {
    format!("/api/v1/namespaces/{ACCESS_NAMESPACE}/serviceaccounts")
}

fn binding_name(account: &str) -> String {
    format!("{ACCESS_NAMESPACE}:{account}")
}

fn binding_path(account: &str) -> String {
    format!("{BINDINGS}/{}", binding_name(account))
}

/// The question whether the account of these terms may do what `role` is known by. Groups are those that every ServiceAccount has.
fn review(terms: &AccessTerms, role: AccessRole) -> Value {
    let groups =
        ["system:serviceaccounts", &format!("system:serviceaccounts:{ACCESS_NAMESPACE}"), "system:authenticated"];
    let user = format!("system:serviceaccount:{ACCESS_NAMESPACE}:{}", terms.name);
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": { "user": user, "groups": groups, "resourceAttributes": role.example() },
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

/// Any text as a label's value: what Kubernetes does not take becomes `-`, and 63 characters are kept.
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
    fn a_binding_that_gives_more_than_ours_is_another() {
        let terms = AccessTerms {
            name: "access-1".into(),
            role: AccessRole::ClusterView,
            kind: "direct".into(),
            requested_by: "ann".into(),
            seconds: 600,
            context: "prod".into(),
        };
        let says = |change: &dyn Fn(&mut Value)| {
            let mut found = binding(&terms);
            change(&mut found);
            serde_json::from_value::<FoundBinding>(found).unwrap().says(&terms)
        };
        assert!(says(&|_| {}));
        assert!(!says(&|found| found["roleRef"]["name"] = "cluster-admin".into()));
        assert!(!says(&|found| found["roleRef"]["kind"] = "Role".into()));
        assert!(!says(&|found| found["subjects"][0]["name"] = "access-2".into()));
        assert!(!says(&|found| found["subjects"][0]["namespace"] = "default".into()));
        assert!(!says(&|found| found["subjects"][0]["kind"] = "User".into()));
        assert!(!says(&|found| found["subjects"] = Value::Null));
        assert!(!says(&|found| {
            let mut more = found["subjects"][0].clone();
            more["name"] = "somebody".into();
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
