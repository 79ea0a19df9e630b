//! Authentication: from credentials to a user.
//!
//! As in kube-apiserver a client certificate is tried first, then a bearer token. A request that
//! presents neither is anonymous; a request with invalid credentials only is rejected. RBAC decides
//! what anonymous users may do.
//!
//! Start at [`Authenticator::authenticate`].

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use coracle_clock::Clock;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;

pub use coracle_apimachinery::user::{
    ANONYMOUS, AUTHENTICATED, CREDENTIAL_ID, MASTERS, NODE_NAME, NODES, UNAUTHENTICATED, UserInfo,
};

use super::tls::Peer;
use super::websocket_token;
use crate::validation::content::{dns1123_label, dns1123_subdomain};
use crate::{Error, Result};

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Returns the user name of a service account.
pub fn service_account_username(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// Returns the groups of a service account.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Returns namespace and name of a service account; None if the user name is not that of a service
/// account.
pub fn split_service_account_username(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (dns1123_label(namespace).is_empty() && dns1123_subdomain(name).is_empty()).then_some((namespace, name))
}

/// An authenticator of bearer tokens, such as the token file or service account tokens.
pub trait TokenAuthenticator: Send + Sync {
    /// Authenticates the user of a token, which must be intended for one of the audiences.
    fn authenticate(&self, token: &str, audiences: &[String]) -> TokenOutcome;
}

/// The outcome of authenticating a bearer token.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenOutcome {
    /// The token is not of this authenticator's kind.
    Unrecognized,
    /// The token is of this authenticator's kind but invalid; token reviews show the reason.
    Invalid(String),
    /// The user, and the requested audiences that the token is intended for.
    Authenticated {
        /// The user.
        user: Arc<UserInfo>,
        /// The requested audiences that the token is intended for.
        audiences: Vec<String>,
    },
}

/// An authenticator of requests that have neither a client certificate nor a bearer token, such as
/// those of a page with a cookie.
pub trait RequestAuthenticator: Send + Sync {
    /// Returns the user of a request; None if the request has no credentials for this
    /// authenticator. It gets the whole head of the request, because a user may be valid for some
    /// paths and methods only.
    fn authenticate(&self, request: &Parts) -> Option<Arc<UserInfo>>;
}

/// All authenticators.
pub struct Authenticator {
    requests: Option<Box<dyn RequestAuthenticator>>,
    tokens: Vec<Box<dyn TokenAuthenticator>>,
    audiences: Vec<String>,
    allows_anonymous: bool,
    clock: Clock,
}

impl Authenticator {
    /// Creates an authenticator.
    ///
    /// - `tokens`: the authenticators of bearer tokens, in the order in which they are tried.
    /// - `clock`: the time against which client certificates are validated.
    pub fn new(tokens: Vec<Box<dyn TokenAuthenticator>>, clock: Clock) -> Authenticator {
        let audiences = own_audiences().into();
        Authenticator { requests: None, tokens, audiences, allows_anonymous: true, clock }
    }

    /// Adds an authenticator of requests without credentials.
    pub fn with_requests(mut self, requests: Box<dyn RequestAuthenticator>) -> Authenticator {
        self.requests = Some(requests);
        self
    }

    /// Replaces the audiences of tokens for this server.
    pub fn with_audiences(mut self, audiences: Vec<String>) -> Authenticator {
        self.audiences = audiences;
        self
    }

    /// Sets whether requests without credentials are served as the anonymous user
    /// (`--anonymous-auth`). The default is `true`.
    pub fn with_anonymous(mut self, is_allowed: bool) -> Authenticator {
        self.allows_anonymous = is_allowed;
        self
    }

    /// Returns the audiences of tokens for this server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Authenticates a request over a connection from this peer.
    ///
    /// # Errors
    /// As of [`authenticate`](Self::authenticate).
    pub fn authenticate_request(&self, request: &Parts, peer: &Peer) -> Result<Arc<UserInfo>> {
        let requests = self.requests.as_ref().filter(|_| !self.has_credentials(request, peer));
        match requests.and_then(|requests| requests.authenticate(request)) {
            Some(user) => Ok(user),
            None => self.authenticate(&request.headers, peer),
        }
    }

    /// Returns whether a request over a connection from this peer has credentials, valid or not.
    pub fn has_credentials(&self, request: &Parts, peer: &Peer) -> bool {
        !matches!(peer, Peer::Unidentified) || request.headers.contains_key(AUTHORIZATION)
    }

    /// Returns the seconds until the certificate of a peer expires; None without one.
    pub fn remaining_validity(&self, peer: &Peer) -> Option<i64> {
        match peer {
            Peer::Certified(certificate) => Some(certificate.remaining_at(self.clock.now().as_second())),
            Peer::Known(_) | Peer::Unidentified | Peer::Rejected => None,
        }
    }

    /// Authenticates a request with these headers over a connection from this peer.
    ///
    /// # Errors
    /// [`Error::Unauthorized`] if credentials were presented and none is valid, or if there are
    /// none and anonymous requests are not allowed.
    pub fn authenticate(&self, headers: &HeaderMap, peer: &Peer) -> Result<Arc<UserInfo>> {
        // A connection can outlive its client certificate, so the validity is checked for each
        // request.
        let known = match peer {
            Peer::Known(user) => Some(user),
            Peer::Certified(certificate) => certificate.user_at(self.clock.now().as_second()),
            Peer::Unidentified | Peer::Rejected => None,
        };
        if let Some(user) = known {
            return Ok(Arc::clone(user));
        }
        let token = match bearer_token(headers) {
            Some(token) => Some(Cow::Borrowed(token)),
            None => websocket_token::bearer_token(headers)?.map(Cow::Owned),
        };
        match (token, peer) {
            (Some(token), _) => match self.token(&token, &self.audiences) {
                Ok((user, _)) => Ok(user),
                Err(_) => Err(Error::Unauthorized),
            },
            (None, Peer::Rejected | Peer::Certified(_)) => Err(Error::Unauthorized),
            (None, _) if self.allows_anonymous => Ok(Arc::clone(&ANONYMOUS_USER)),
            (None, _) => Err(Error::Unauthorized),
        }
    }

    /// Authenticates a bearer token; returns its user, and the audiences it is valid for.
    ///
    /// # Errors
    /// The text that a token review shows.
    pub fn token(&self, token: &str, audiences: &[String]) -> Result<(Arc<UserInfo>, Vec<String>), String> {
        let mut refusals = Vec::new();
        for authenticator in &self.tokens {
            match authenticator.authenticate(token, audiences) {
                TokenOutcome::Unrecognized => {}
                TokenOutcome::Invalid(why) => refusals.push(why),
                TokenOutcome::Authenticated { user, audiences } => return Ok((user, audiences)),
            }
        }
        const INVALID: &str = "invalid bearer token";
        match refusals.as_slice() {
            [] => Err(INVALID.to_owned()),
            more => Err(format!("[{INVALID}, {}]", more.join(", "))),
        }
    }
}

/// Returns the default audiences of tokens for the API server itself: their issuer.
pub fn own_audiences() -> [String; 1] {
    [super::jwt::ISSUER.to_owned()]
}

static ANONYMOUS_USER: LazyLock<Arc<UserInfo>> =
    LazyLock::new(|| Arc::new(UserInfo::new(ANONYMOUS, &[UNAUTHENTICATED])));

/// The warning to a client whose token is not read.
pub const MISPLACED_SPACE: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// Returns `true` if a second space before a token hides it.
pub fn has_misplaced_space(headers: &HeaderMap) -> bool {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let parts: Vec<&str> = value.trim().splitn(3, ' ').collect();
    matches!(*parts, [scheme, "", _] if scheme.eq_ignore_ascii_case("bearer"))
}

/// Returns the token of an `Authorization: Bearer TOKEN` header; None for an empty token or another
/// scheme.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut parts = value.splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::token_file::TokenFile;

    fn authenticator() -> Authenticator {
        let file =
            TokenFile::parse("tokens.csv", "t1,alice,u1,\"devs,ops\"\nt2,bob,u2\n").expect("two tokens");
        Authenticator::new(vec![Box::new(file)], Clock::mock(jiff::Timestamp::UNIX_EPOCH).0)
    }

    #[test]
    fn credentials_decide_the_user() {
        let cert = || Peer::Known(Arc::new(UserInfo::new("carol", &[AUTHENTICATED])));
        let authenticator = authenticator();
        for (case, header, peer, want) in [
            ("no header", None, Peer::Unidentified, Ok("system:anonymous [system:unauthenticated]")),
            ("a token", Some("Bearer t1"), Peer::Unidentified, Ok("alice [devs,ops,system:authenticated]")),
            ("without groups", Some("bearer t2"), Peer::Unidentified, Ok("bob [system:authenticated]")),
            ("a bad token", Some("Bearer x"), Peer::Unidentified, Err(401)),
            (
                "more after the token",
                Some("Bearer t1 x"),
                Peer::Unidentified,
                Ok("alice [devs,ops,system:authenticated]"),
            ),
            (
                "empty bearer",
                Some("Bearer "),
                Peer::Unidentified,
                Ok("system:anonymous [system:unauthenticated]"),
            ),
            (
                "two spaces",
                Some("Bearer  t1"),
                Peer::Unidentified,
                Ok("system:anonymous [system:unauthenticated]"),
            ),
            (
                "basic",
                Some("Basic YTpi"),
                Peer::Unidentified,
                Ok("system:anonymous [system:unauthenticated]"),
            ),
            ("certificate first", Some("Bearer x"), cert(), Ok("carol [system:authenticated]")),
            (
                "token for a foreign certificate",
                Some("Bearer t2"),
                Peer::Rejected,
                Ok("bob [system:authenticated]"),
            ),
            ("foreign certificate only", None, Peer::Rejected, Err(401)),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, header.parse().expect("a header"));
            }
            let got = authenticator.authenticate(&headers, &peer);
            let got =
                got.as_ref().map(|u| format!("{} [{}]", u.name, u.groups.join(","))).map_err(Error::code);
            assert_eq!(got, want.map(str::to_owned), "{case}");
        }
    }

    #[test]
    fn requests_without_credentials_may_have_an_authenticator_of_their_own() {
        struct Page;
        impl RequestAuthenticator for Page {
            fn authenticate(&self, request: &Parts) -> Option<Arc<UserInfo>> {
                (request.uri.path() == "/page").then(|| Arc::new(UserInfo::new("page", &[])))
            }
        }
        let cert = || Peer::Known(Arc::new(UserInfo::new("carol", &[AUTHENTICATED])));
        for allows_anonymous in [true, false] {
            let authenticator =
                authenticator().with_anonymous(allows_anonymous).with_requests(Box::new(Page));
            let anonymous = if allows_anonymous { Ok(ANONYMOUS) } else { Err(401) };
            for (path, token, peer, want) in [
                ("/page", None, Peer::Unidentified, Ok("page")),
                ("/api", None, Peer::Unidentified, anonymous),
                ("/page", Some("Bearer t1"), Peer::Unidentified, Ok("alice")),
                ("/page", Some("Bearer x"), Peer::Unidentified, Err(401)),
                ("/page", None, cert(), Ok("carol")),
                ("/page", None, Peer::Rejected, Err(401)),
            ] {
                let request = token
                    .into_iter()
                    .fold(http::Request::get(path), |request, token| request.header(AUTHORIZATION, token));
                let (parts, ()) = request.body(()).expect("a request").into_parts();
                let got = authenticator.authenticate_request(&parts, &peer);
                let got = got.as_ref().map(|user| user.name.as_str()).map_err(Error::code);
                assert_eq!(got, want, "{path} {token:?}");
            }
        }
    }

    #[test]
    fn anonymous_requests_may_be_rejected() {
        let authenticator = authenticator().with_anonymous(false);
        for (header, is_accepted) in [(None, false), (Some("Basic YTpi"), false), (Some("Bearer t1"), true)] {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, header.parse().expect("a header"));
            }
            let got = authenticator.authenticate(&headers, &Peer::Unidentified);
            assert_eq!(got.is_ok(), is_accepted, "{header:?}");
        }
        let certified = Peer::Known(Arc::new(UserInfo::new("carol", &[AUTHENTICATED])));
        assert!(authenticator.authenticate(&HeaderMap::new(), &certified).is_ok());
    }

    #[test]
    fn service_account_usernames_are_parsed() {
        for (username, want) in [
            ("system:serviceaccount:ns:robot", Some(("ns", "robot"))),
            ("system:serviceaccount:ns:a.b", Some(("ns", "a.b"))),
            ("system:serviceaccount:ns", None),
            ("system:serviceaccount:ns:a:b", None),
            ("system:serviceaccount:N:a", None),
            ("alice", None),
        ] {
            assert_eq!(split_service_account_username(username), want, "{username}");
        }
    }
}
