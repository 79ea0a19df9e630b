//! Impersonation: `Impersonate-*` headers, for users who are allowed to act as another user.
//!
//! Kubernetes 1.36 has five modes (KEP-5284). Four are constrained: the caller needs the right to
//! impersonate that kind of user *and* the right to make this request in that mode; the fifth is
//! the verb `impersonate`. The first mode that allows the request is used, beginning with the one
//! that last succeeded for the caller; if none does, the denial of the first one is returned.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;

use super::authenticate::{
    ANONYMOUS, AUTHENTICATED, MASTERS, NODE_NAME, NODES, UNAUTHENTICATED, UserInfo, service_account_groups,
    split_service_account_username,
};
use super::authorize::{Authorizer, RequestAttributes, ResourceTarget, Target, forbidden};
use crate::field::quote;
use crate::validation::content::{dns1123_subdomain, regex_error};
use crate::{Error, Result};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const NODE_PREFIX: &str = "system:node:";
/// From this many groups or extra values on, a right to all of them is checked first.
const TRY_WILDCARD_FROM: usize = 4;
/// The number of callers with a remembered mode.
const MAX_REMEMBERED_CALLERS: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

/// The user as whom a request is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonated {
    /// The user.
    pub user: Arc<UserInfo>,
    /// The verb that authorized a constrained impersonation, such as `impersonate:user-info`.
    pub constraint: Option<String>,
}

/// Replaces the user of a request by the impersonated one.
#[derive(Default)]
pub struct Impersonator {
    /// The mode that last succeeded, by the caller's name.
    last: Mutex<HashMap<String, Mode>>,
}

impl Impersonator {
    /// Returns the user that the headers request; None if they request none.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for headers without a user, [`Error::Forbidden`] if the caller is not
    /// allowed.
    pub fn impersonate(
        &self,
        headers: &HeaderMap,
        caller: &UserInfo,
        request: &RequestAttributes<'_>,
        authorizer: &Authorizer,
    ) -> Result<Option<Impersonated>> {
        if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
            return Ok(None);
        }
        let Some(requested_user) = requested_user(headers)? else { return Ok(None) };
        let attempt = Attempt { requested_user: &requested_user, caller, request, authorizer };
        let last = self.last_mode(caller);
        let mut refusal = None;
        for mode in last.into_iter().chain(MODES.into_iter().filter(|m| Some(*m) != last)) {
            match attempt.by(mode) {
                Some(Ok(user)) => {
                    self.set_last_mode(caller, mode);
                    return Ok(Some(user));
                }
                Some(Err(error)) => {
                    refusal.get_or_insert(error);
                }
                None => {}
            }
        }
        Err(refusal.unwrap_or(Error::Unauthorized))
    }

    fn last_mode(&self, caller: &UserInfo) -> Option<Mode> {
        self.last.lock().get(&caller.name).copied()
    }

    fn set_last_mode(&self, caller: &UserInfo, mode: Mode) {
        let mut last = self.last.lock();
        if last.len() >= MAX_REMEMBERED_CALLERS {
            last.clear();
        }
        last.insert(caller.name.clone(), mode);
    }
}

/// Returns the user that the headers request.
fn requested_user(headers: &HeaderMap) -> Result<Option<UserInfo>> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name| headers.get(name).map(text).unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            extra.entry(unescape(key)).or_default().push(text(value));
        }
    }
    let groups = headers.get_all(GROUP).iter().map(text).collect();
    let user = UserInfo { name: first(USER), uid: first(UID), groups, extra };
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user == UserInfo::default() {
        return Ok(None);
    }
    Err(Error::bad_request(format!("requested {} without impersonating a user name", go_syntax(&user))))
}

/// Decodes percent-encoding; text that is not percent-encoded is returned as it is.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let decoded = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |c: &u8| char::from(*c).to_digit(16);
                let (Some(high), Some(low)) = (digit(high), digit(low)) else { return text.to_owned() };
                rest = tail;
                (high * 16 + low) as u8
            }
            (b'%', _) => return text.to_owned(),
            _ => {
                rest = tail;
                *first
            }
        };
        bytes.push(decoded);
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Returns the requested user as kube-apiserver prints it: in Go's syntax.
fn go_syntax(user: &UserInfo) -> String {
    let list = |items: &[String]| {
        if items.is_empty() {
            return "[]string(nil)".to_owned();
        }
        format!("[]string{{{}}}", items.iter().map(|i| quote(i)).collect::<Vec<_>>().join(", "))
    };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let entries: Vec<String> =
            user.extra.iter().map(|(k, v)| format!("{}:{}", quote(k), list(v))).collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{}, Extra:{extra}}}",
        quote(&user.name),
        quote(&user.uid),
        list(&user.groups)
    )
}

/// Returns the name of the node with this user name; None if the user is not a node.
fn node_name(username: &str) -> Option<&str> {
    username.strip_prefix(NODE_PREFIX).filter(|name| dns1123_subdomain(name).is_empty())
}

struct Attempt<'a> {
    requested_user: &'a UserInfo,
    caller: &'a UserInfo,
    request: &'a RequestAttributes<'a>,
    authorizer: &'a Authorizer,
}

impl Attempt<'_> {
    /// Impersonates the user in a mode; returns None if the mode does not apply to such a user.
    fn by(&self, mode: Mode) -> Option<Result<Impersonated>> {
        let name = &self.requested_user.name;
        let plain = self.requested_user.uid.is_empty()
            && self.requested_user.groups.is_empty()
            && self.requested_user.extra.is_empty();
        let node = node_name(name);
        let service_account = split_service_account_username(name);
        let title = match mode {
            Mode::AssociatedNode if plain && node.is_some() && node == self.own_node() => "associated-node",
            Mode::ArbitraryNode if plain && node.is_some() => "arbitrary-node",
            Mode::ServiceAccount if plain && service_account.is_some() => "serviceaccount",
            Mode::UserInfo if node.is_none() && service_account.is_none() => "user-info",
            Mode::Legacy => {
                let user = self.legacy().map(Arc::new);
                return Some(user.map(|user| Impersonated { user, constraint: None }));
            }
            _ => return None,
        };
        let user = self.constrained(mode, title).map(Arc::new);
        let constraint = Some(format!("impersonate:{title}"));
        Some(user.map(|user| Impersonated { user, constraint }))
    }

    /// Returns the node on which the pod of the calling service account runs.
    fn own_node(&self) -> Option<&str> {
        split_service_account_username(&self.caller.name)?;
        match self.caller.extra.get(NODE_NAME)?.as_slice() {
            [node] => Some(node),
            _ => None,
        }
    }

    fn constrained(&self, mode: Mode, title: &str) -> Result<UserInfo> {
        let on = format!("impersonate-on:{title}:{}", self.request.verb);
        self.authorizer.check(self.caller, &RequestAttributes { verb: &on, target: self.request.target })?;
        let rights = ImpersonationRights {
            attempt: self,
            verb: format!("impersonate:{title}"),
            group: AUTHENTICATION_GROUP,
        };
        let mut user = self.requested_user.clone();
        if let Some(node) = node_name(&user.name) {
            // A right to the associated node must be a right to all nodes, since the node differs
            // between pods.
            let node = if mode == Mode::AssociatedNode { "*" } else { node };
            rights.check("nodes", "", "", node)?;
            user.groups = vec![NODES.to_owned()];
            return Ok(with_implied_group(user));
        }
        rights.check_user(&mut user)?;
        rights.check_uid()?;
        let groups = &self.requested_user.groups;
        if groups.iter().any(String::is_empty) {
            return Err(rights.refuse("groups", "", "impersonating the empty string group is not allowed"));
        }
        if groups.iter().any(|g| g == MASTERS) {
            return Err(rights.refuse(
                "groups",
                MASTERS,
                "impersonating the system:masters group is not allowed",
            ));
        }
        if groups.len() < TRY_WILDCARD_FROM || rights.check("groups", "", "", "*").is_err() {
            rights.check_groups()?;
        }
        if let Some(problem) = self.extra_problem() {
            return Err(rights.refuse("userextras", "", &problem));
        }
        let values: usize = self.requested_user.extra.values().map(Vec::len).sum();
        if values < TRY_WILDCARD_FROM || rights.check("userextras", "*", "", "*").is_err() {
            rights.check_extra()?;
        }
        Ok(with_implied_group(user))
    }

    fn legacy(&self) -> Result<UserInfo> {
        let rights = ImpersonationRights { attempt: self, verb: "impersonate".to_owned(), group: "" };
        let mut user = self.requested_user.clone();
        rights.check_user(&mut user)?;
        rights.check_uid()?;
        rights.check_groups()?;
        rights.check_extra()?;
        Ok(with_implied_group(user))
    }

    fn extra_problem(&self) -> Option<String> {
        self.requested_user.extra.iter().find_map(|(key, values)| {
            if key.is_empty() {
                return Some("impersonating the empty string key in extra is not allowed".to_owned());
            }
            if let Some(problem) = domain_prefixed_path_problem(key) {
                return Some(format!("impersonating an invalid key in extra is not allowed: {problem}"));
            }
            values
                .iter()
                .any(String::is_empty)
                .then(|| "impersonating the empty string value in extra is not allowed".to_owned())
        })
    }
}

/// Returns the error in a key that must have the form `example.com/path`; None if it is valid.
fn domain_prefixed_path_problem(key: &str) -> Option<String> {
    let invalid =
        |value: &str, detail: &str| Some(format!("extra.key: Invalid value: {}: {detail}", quote(value)));
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    if host.is_empty() || path.is_empty() {
        return invalid(key, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    }
    if let Some(problem) = dns1123_subdomain(host).first() {
        return invalid(host, problem);
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if path.chars().all(legal) {
        return None;
    }
    invalid(path, &regex_error("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]))
}

/// Adds the group of authenticated or of unauthenticated users.
fn with_implied_group(mut user: UserInfo) -> UserInfo {
    if user.name == ANONYMOUS {
        user.join(UNAUTHENTICATED);
    } else if !user.is_in(UNAUTHENTICATED) {
        user.join(AUTHENTICATED);
    }
    user
}

/// The rights to impersonate, under one verb.
struct ImpersonationRights<'a> {
    attempt: &'a Attempt<'a>,
    verb: String,
    /// The API group of users, groups and service accounts: the legacy mode has them in the core
    /// group.
    group: &'static str,
}

impl ImpersonationRights<'_> {
    fn target<'a>(
        &'a self,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> RequestAttributes<'a> {
        let group = if matches!(resource, "uids" | "userextras") { AUTHENTICATION_GROUP } else { self.group };
        let target = ResourceTarget { group, resource, subresource, namespace, name };
        RequestAttributes { verb: &self.verb, target: Target::Resource(target) }
    }

    fn check(&self, resource: &str, subresource: &str, namespace: &str, name: &str) -> Result<()> {
        let attempt = self.attempt;
        attempt.authorizer.check(attempt.caller, &self.target(resource, subresource, namespace, name))
    }

    fn refuse(&self, resource: &str, name: &str, reason: &str) -> Error {
        forbidden(self.attempt.caller, &self.target(resource, "", "", name), reason)
    }

    /// Checks the requested user. Service accounts get their groups unless other groups are
    /// requested.
    fn check_user(&self, user: &mut UserInfo) -> Result<()> {
        match split_service_account_username(&self.attempt.requested_user.name) {
            Some((namespace, name)) => {
                if user.groups.is_empty() {
                    user.groups = service_account_groups(namespace);
                }
                self.check("serviceaccounts", "", namespace, name)
            }
            None => self.check("users", "", "", &self.attempt.requested_user.name),
        }
    }

    fn check_uid(&self) -> Result<()> {
        let uid = &self.attempt.requested_user.uid;
        if uid.is_empty() { Ok(()) } else { self.check("uids", "", "", uid) }
    }

    fn check_groups(&self) -> Result<()> {
        self.attempt.requested_user.groups.iter().try_for_each(|group| self.check("groups", "", "", group))
    }

    fn check_extra(&self) -> Result<()> {
        let pairs = self
            .attempt
            .requested_user
            .extra
            .iter()
            .flat_map(|(k, values)| values.iter().map(move |v| (k, v)));
        pairs.into_iter().try_for_each(|(key, value)| self.check("userextras", key, "", value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::always_deny;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let name = |n: &str| http::HeaderName::from_bytes(n.as_bytes()).expect(n);
        pairs.iter().map(|(n, v)| (name(n), v.parse().expect("a value"))).collect()
    }

    fn try_as(caller: &UserInfo, requested: &[(&str, &str)]) -> String {
        let target = ResourceTarget { resource: "pods", namespace: "ns", ..ResourceTarget::default() };
        let request = RequestAttributes { verb: "list", target: Target::Resource(target) };
        match Impersonator::default().impersonate(&headers(requested), caller, &request, &always_deny()) {
            Ok(None) => "nobody".to_owned(),
            Ok(Some(Impersonated { user, .. })) => {
                format!("{} [{}] {:?}", user.name, user.groups.join(","), user.extra)
            }
            Err(error) => format!("{} {error}", error.code()),
        }
    }

    #[test]
    fn system_masters_may_impersonate_anybody() {
        let admin = UserInfo::new("admin", &[MASTERS]);
        for (requested, want) in [
            (&[][..], "nobody"),
            (&[("Impersonate-User", "bob")], "bob [system:authenticated] {}"),
            (
                &[("Impersonate-User", "bob"), ("Impersonate-Group", MASTERS)],
                "bob [system:masters,system:authenticated] {}",
            ),
            (
                &[("Impersonate-User", "system:serviceaccount:ns:sa")],
                "system:serviceaccount:ns:sa [system:serviceaccounts,system:serviceaccounts:ns,system:authenticated] {}",
            ),
            (
                &[("Impersonate-User", "system:serviceaccount:ns:sa"), ("Impersonate-Group", "x")],
                "system:serviceaccount:ns:sa [x,system:authenticated] {}",
            ),
            (&[("Impersonate-User", ANONYMOUS)], "system:anonymous [system:unauthenticated] {}"),
            (
                &[("Impersonate-User", "system:node:n1")],
                "system:node:n1 [system:nodes,system:authenticated] {}",
            ),
            (
                &[("Impersonate-User", "bob"), ("Impersonate-Extra-Acme.io%2fScope", "view")],
                r#"bob [system:authenticated] {"acme.io/scope": ["view"]}"#,
            ),
            (
                &[("Impersonate-Group", MASTERS)],
                r#"400 requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"system:masters"}, Extra:map[string][]string(nil)} without impersonating a user name"#,
            ),
            (
                &[("Impersonate-Uid", "u"), ("Impersonate-Extra-B", "c"), ("Impersonate-Extra-B", "d")],
                r#"400 requested &user.DefaultInfo{Name:"", UID:"u", Groups:[]string(nil), Extra:map[string][]string{"b":[]string{"c", "d"}}} without impersonating a user name"#,
            ),
        ] {
            assert_eq!(try_as(&admin, requested), want, "{requested:?}");
        }
    }
}
