//! Health: named checks behind `/healthz`, `/livez` and `/readyz`.
//!
//! A check is a closure that is evaluated at every request; a [`Hook`] is a step of the start-up,
//! and its check fails until it has finished. The reason of a failure is only logged: the endpoints
//! are open to everyone, so the response says only that the check failed.
//!
//! Source: API concepts, "API health endpoints".

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::field::quote;
use crate::request::options::Query;

/// A health endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/healthz`.
    Healthz,
    /// `/livez`.
    Livez,
    /// `/readyz`.
    Readyz,
}

impl Endpoint {
    /// All endpoints.
    pub const ALL: &'static [Endpoint] = &[Endpoint::Healthz, Endpoint::Livez, Endpoint::Readyz];

    fn name(self) -> &'static str {
        match self {
            Endpoint::Healthz => "healthz",
            Endpoint::Livez => "livez",
            Endpoint::Readyz => "readyz",
        }
    }
}

type Probe = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

struct Check {
    name: Cow<'static, str>,
    endpoints: &'static [Endpoint],
    probe: Probe,
    /// By [`Endpoint`].
    results: [Results; 3],
}

/// The results of a check for an endpoint so far.
#[derive(Default)]
struct Results {
    successes: AtomicU64,
    errors: AtomicU64,
    has_failed: AtomicBool,
}

impl Results {
    fn observe(&self, is_success: bool) {
        let count = if is_success { &self.successes } else { &self.errors };
        count.fetch_add(1, Ordering::Relaxed);
        self.has_failed.store(!is_success, Ordering::Relaxed);
    }

    /// Returns the number of errors, and of successes, with their labels.
    fn counts(&self) -> [(&'static str, u64); 2] {
        [("error", &self.errors), ("success", &self.successes)]
            .map(|(status, count)| (status, count.load(Ordering::Relaxed)))
    }
}

/// The checks, in the order in which they are listed.
pub struct Health {
    checks: Vec<Check>,
}

/// A step of the start-up, and the server is unhealthy until it has finished; or the beginning of
/// the shutdown.
#[derive(Clone, Debug, Default)]
pub struct Hook(Arc<AtomicBool>);

impl Hook {
    /// Marks the step as finished.
    pub fn finish(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_finished(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Default for Health {
    fn default() -> Health {
        Health::new()
    }
}

impl Health {
    /// Creates the two checks of every server.
    pub fn new() -> Health {
        let mut health = Health { checks: Vec::new() };
        health.check("ping", Endpoint::ALL, || Ok(()));
        health.check("log", Endpoint::ALL, || Ok(()));
        health
    }

    /// Adds a check. Its error is returned by `ENDPOINT/NAME`, which requires authorization, and
    /// logged.
    pub fn check(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        endpoints: &'static [Endpoint],
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let results = <[Results; 3]>::default();
        self.checks.push(Check { name: name.into(), endpoints, probe: Box::new(probe), results });
    }

    /// Adds the check of a step of the start, which fails until the hook is finished.
    pub fn hook(&mut self, name: impl Into<Cow<'static, str>>) -> Hook {
        let hook = Hook::default();
        let step = hook.clone();
        self.check(name, Endpoint::ALL, move || {
            if step.is_finished() { Ok(()) } else { Err("not finished".to_owned()) }
        });
        hook
    }

    /// Adds the check `shutdown`: finishing the hook makes the server unready, but not unhealthy.
    pub fn shutdown(&mut self) -> Hook {
        let hook = Hook::default();
        let step = hook.clone();
        self.check("shutdown", &[Endpoint::Readyz], move || {
            if step.is_finished() { Err("process is shutting down".to_owned()) } else { Ok(()) }
        });
        hook
    }

    /// Returns `true` if every check of the endpoint passes.
    pub fn passes(&self, endpoint: Endpoint) -> bool {
        self.checks_of(endpoint).all(|check| (check.probe)().is_ok())
    }

    /// Iterates over the served paths, for the index of the server.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        Endpoint::ALL.iter().flat_map(|endpoint| {
            let root = format!("/{}", endpoint.name());
            let checks =
                self.checks_of(*endpoint).map(|check| format!("/{}/{}", endpoint.name(), check.name));
            std::iter::once(root).chain(checks)
        })
    }

    /// Serves `/healthz`, `/livez`, `/readyz` and the single checks below them, whatever the
    /// method; None for any other path.
    pub fn respond(&self, path: &str, query: &Query) -> Option<Response<Bytes>> {
        let path = path.strip_prefix('/')?;
        let (root, name) = path.split_once('/').map_or((path, None), |(root, name)| (root, Some(name)));
        let endpoint = Endpoint::ALL.iter().copied().find(|endpoint| endpoint.name() == root)?;
        let Some(name) = name else { return Some(self.sum(endpoint, query)) };
        let check = self.checks_of(endpoint).find(|check| check.name == name)?;
        Some(match (check.probe)() {
            Ok(()) => {
                let mut response = text(StatusCode::OK, "ok".to_owned());
                response.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
                response
            }
            Err(error) => {
                text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {error}\n"))
            }
        })
    }

    /// Renders the response of `/metrics/slis`: the results of the checks that have been made, in
    /// Prometheus' text format.
    ///
    /// Source: KEP-3466.
    pub fn indicators(&self) -> String {
        let mut lines = String::from(
            "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n\
             # TYPE kubernetes_healthcheck gauge\n",
        );
        let mut totals = String::from(
            "# HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.\n\
             # TYPE kubernetes_healthchecks_total counter\n",
        );
        let mut checks: Vec<&Check> = self.checks.iter().collect();
        checks.sort_by_key(|check| &check.name);
        for check in checks {
            for endpoint in check.endpoints {
                let (name, endpoint_name) = (&check.name, endpoint.name());
                let results = &check.results[*endpoint as usize];
                let counts = results.counts().into_iter().filter(|(_, count)| *count > 0);
                for (status, count) in counts.clone() {
                    let _ = writeln!(
                        totals,
                        r#"kubernetes_healthchecks_total{{name="{name}",status="{status}",type="{endpoint_name}"}} {count}"#
                    );
                }
                if counts.count() > 0 {
                    let value = u8::from(!results.has_failed.load(Ordering::Relaxed));
                    let _ = writeln!(
                        lines,
                        r#"kubernetes_healthcheck{{name="{name}",type="{endpoint_name}"}} {value}"#
                    );
                }
            }
        }
        lines + &totals
    }

    fn checks_of(&self, endpoint: Endpoint) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |check| check.endpoints.contains(&endpoint))
    }

    fn sum(&self, endpoint: Endpoint, query: &Query) -> Response<Bytes> {
        let name = endpoint.name();
        let excluded: BTreeSet<&str> = query.all("exclude").collect();
        let mut lines = String::new();
        let mut failed = false;
        for check in self.checks_of(endpoint) {
            let verdict = if excluded.contains(&*check.name) {
                "excluded: ok"
            } else {
                let result = (check.probe)();
                check.results[endpoint as usize].observe(result.is_ok());
                match result {
                    Ok(()) => "ok",
                    Err(error) => {
                        tracing::info!(endpoint = name, check = %check.name, error, "health check failed");
                        failed = true;
                        "failed: reason withheld"
                    }
                }
            };
            let sign = if verdict.ends_with("ok") { '+' } else { '-' };
            let _ = writeln!(lines, "[{sign}]{} {verdict}", check.name);
        }
        let known = |name: &&str| self.checks_of(endpoint).any(|check| check.name == *name);
        let unknown: Vec<String> =
            excluded.iter().filter(|name| !known(name)).map(|name| quote(name)).collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(",");
            let _ = writeln!(lines, "warn: some health checks cannot be excluded: no matches for {unknown}");
        }
        if failed {
            text(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{name} check failed\n"))
        } else if query.has("verbose") {
            text(StatusCode::OK, format!("{lines}{name} check passed\n"))
        } else {
            text(StatusCode::OK, "ok".to_owned())
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(health: &Health, uri: &str) -> String {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        match health.respond(path, &Query::parse(query)) {
            None => "none".to_owned(),
            Some(response) => {
                let body = std::str::from_utf8(response.body()).expect("text");
                format!("{} {body}", response.status().as_u16())
            }
        }
    }

    #[test]
    fn endpoints_report_their_checks() {
        let mut health = Health::new();
        health.check("etcd", &[Endpoint::Readyz], || Err("disk full".to_owned()));
        let roles = health.hook("poststarthook/rbac/bootstrap-roles");
        let shutdown = health.shutdown();
        roles.finish();
        let bad = "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n[+]poststarthook/rbac/bootstrap-roles ok\n\
                   [+]shutdown ok\nreadyz check failed\n";
        for (uri, want) in [
            ("/healthz", "200 ok".to_owned()),
            ("/livez", "200 ok".to_owned()),
            ("/readyz", format!("500 {bad}")),
            ("/readyz?exclude=etcd", "200 ok".to_owned()),
            ("/readyz/etcd", "500 internal server error: disk full\n".to_owned()),
            ("/readyz/ping", "200 ok".to_owned()),
            ("/livez/etcd", "none".to_owned()),
            ("/livez/", "none".to_owned()),
            ("/readyz/poststarthook", "none".to_owned()),
            ("/livez/poststarthook/rbac/bootstrap-roles", "200 ok".to_owned()),
            ("/healthzz", "none".to_owned()),
            (
                "/livez?verbose&exclude=log&exclude=nope&exclude=a",
                "200 [+]ping ok\n[+]log excluded: ok\n[+]poststarthook/rbac/bootstrap-roles ok\n\
                 warn: some health checks cannot be excluded: no matches for \"a\",\"nope\"\n\
                 livez check passed\n"
                    .to_owned(),
            ),
        ] {
            assert_eq!(get(&health, uri), want, "{uri}");
        }
        shutdown.finish();
        assert!(get(&health, "/readyz?exclude=etcd").contains("[-]shutdown failed"));
        let indicators = health.indicators();
        for line in [
            r#"kubernetes_healthcheck{name="etcd",type="readyz"} 0"#,
            r#"kubernetes_healthcheck{name="ping",type="livez"} 1"#,
            r#"kubernetes_healthchecks_total{name="etcd",status="error",type="readyz"} 1"#,
        ] {
            assert!(indicators.contains(line), "{indicators}");
        }
        assert!(health.passes(Endpoint::Livez) && !health.passes(Endpoint::Readyz));
    }

    #[test]
    fn a_hook_holds_the_server_back_until_it_is_finished() {
        let mut health = Health::new();
        let hook = health.hook("poststarthook/start");
        assert!(!health.passes(Endpoint::Readyz));
        assert_eq!(get(&health, "/readyz/poststarthook/start"), "500 internal server error: not finished\n");
        hook.finish();
        assert!(health.passes(Endpoint::Readyz));
    }
}
