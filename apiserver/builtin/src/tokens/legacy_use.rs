//! The label of a Secret with the date on which its token was used last.
//!
//! Source: `patchSecretWithLastUsedDate` in `pkg/serviceaccount/legacy.go`.

use std::collections::HashMap;
use std::sync::Arc;

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::fields::manage::{self, FieldManager};
use coracle_apiserver::fields::versions::Versions;
use coracle_apiserver::registry::deletion::rfc3339;
use coracle_apiserver::registry::{Registry, Target};
use jiff::{SignedDuration, Timestamp, ToSpan, tz::TimeZone};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Handle;

/// The label with the date, which the legacy-service-account-token-cleaner reads.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const MANAGER: &str = "kube-apiserver";
/// The time after which a write that may have failed is tried again.
const RETRY: SignedDuration = SignedDuration::from_mins(1);
/// The limit of the attempts that are remembered.
const MAX_ATTEMPTS: usize = 1024;

/// The stored objects, where the use of a token can be recorded.
pub trait RecordTokenUse: Cluster + Send + Sync {
    /// Labels a Secret with a date, some time later.
    fn record_token_use(self: Arc<Self>, secret: SecretUse);
}

/// The use of the token of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretUse {
    namespace: String,
    name: String,
    uid: String,
    date: String,
}

/// The writes that were begun in the last minute, by the uid of the Secret: requests that arrive
/// before the label is visible begin no other, nor do those of a server that cannot write.
#[derive(Default)]
pub(super) struct Attempts(Mutex<HashMap<String, Timestamp>>);

impl Attempts {
    /// Records the use of the token of a Secret now, once a day.
    pub(super) fn record(&self, cluster: &Arc<dyn RecordTokenUse>, secret: &Value, now: Timestamp) {
        if let Some(used) = due(secret, now)
            && self.begin(&used.uid, now)
        {
            cluster.clone().record_token_use(used);
        }
    }

    /// Returns whether a write may begin, and counts it as begun. A clock that is turned back does
    /// not delay it.
    fn begin(&self, uid: &str, now: Timestamp) -> bool {
        let is_recent = |begun: &Timestamp| *begun <= now && now.duration_since(*begun) < RETRY;
        let mut attempts = self.0.lock();
        if attempts.get(uid).is_some_and(is_recent) {
            return false;
        }
        if attempts.len() >= MAX_ATTEMPTS {
            attempts.retain(|_, begun| is_recent(begun));
        }
        let has_room = attempts.len() < MAX_ATTEMPTS;
        if has_room {
            attempts.insert(uid.to_owned(), now);
        }
        has_room
    }
}

/// Returns what is to be recorded; None if the Secret has the date of today already, or that of
/// tomorrow by the clock of another server.
fn due(secret: &Value, now: Timestamp) -> Option<SecretUse> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let known = secret["metadata"]["labels"][LAST_USED].as_str().unwrap_or("");
    let is_known = known == today.to_string()
        || today.checked_add(1.day()).is_ok_and(|tomorrow| known == tomorrow.to_string());
    let (namespace, name, uid) = (secret.namespace(), secret.name(), secret.uid());
    (!is_known).then(|| SecretUse {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        date: today.to_string(),
    })
}

impl RecordTokenUse for Registry {
    /// Writes in a task of its own, since the request does not depend on it.
    fn record_token_use(self: Arc<Self>, secret: SecretUse) {
        let Ok(runtime) = Handle::try_current() else { return };
        let work = self.clock().activity().begin();
        runtime.spawn(async move {
            if let Err(error) = label(&self, &secret).await
                && error.code() != 404
            {
                let SecretUse { namespace, name, .. } = &secret;
                tracing::warn!(%namespace, %name, %error, "the use of a token is not recorded");
            }
            drop(work);
        });
    }
}

async fn label(registry: &Registry, secret: &SecretUse) -> Result<()> {
    let info = registry.find("", "v1", "secrets").ok_or(Error::UnknownResource)?;
    let now = rfc3339(registry.now());
    let writer =
        FieldManager { manager: MANAGER, api_version: &info.api_version, subresource: "", now: &now };
    let labeled = |stored: &Value| {
        if stored.uid() != secret.uid || stored["metadata"]["labels"][LAST_USED] == secret.date.as_str() {
            return Ok(stored.clone());
        }
        let mut labeled = stored.clone();
        labeled["metadata"]["labels"][LAST_USED] = json!(secret.date);
        let managed_fields = manage::update(&Versions::of(&info), writer, Some(stored), &labeled);
        if let Ok(managed_fields) = managed_fields {
            labeled.set_meta("managedFields", managed_fields);
        }
        Ok(labeled)
    };
    let (namespace, name) = (secret.namespace.clone(), secret.name.clone());
    let target = Target { info: info.clone(), namespace, name };
    registry.rewrite(&target, false, labeled).await
}

#[cfg(test)]
pub(super) mod tests {
    use coracle_apiserver::admission::testing::World;

    use super::*;

    impl RecordTokenUse for World {
        fn record_token_use(self: Arc<Self>, _: SecretUse) {}
    }

    #[test]
    fn a_use_is_recorded_once_a_day() {
        let now: Timestamp = "2026-11-28T23:59:59Z".parse().expect("a time");
        for (label, is_due) in [
            (json!(null), true),
            (json!("2026-11-27"), true),
            (json!("2026-11-28"), false),
            (json!("2026-11-29"), false),
            (json!("2026-11-30"), true),
            (json!("x"), true),
        ] {
            let metadata = json!({"namespace": "ns", "name": "s", "uid": "u", "labels": {LAST_USED: label}});
            let want = SecretUse {
                namespace: "ns".to_owned(),
                name: "s".to_owned(),
                uid: "u".to_owned(),
                date: "2026-11-28".to_owned(),
            };
            assert_eq!(due(&json!({"metadata": metadata}), now), is_due.then_some(want), "{metadata}");
        }
    }

    #[test]
    fn a_write_that_was_begun_is_not_begun_again_for_a_minute() {
        let attempts = Attempts::default();
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().expect("a time");
        let later = |seconds: i64| now + SignedDuration::from_secs(seconds);
        for (case, uid, at, is_begun) in [
            ("the first", "a", now, true),
            ("at once", "a", now, false),
            ("another Secret", "b", now, true),
            ("before a minute has passed", "a", later(59), false),
            ("after a minute", "a", later(60), true),
            ("a clock that was turned back", "a", later(-3600), true),
        ] {
            assert_eq!(attempts.begin(uid, at), is_begun, "{case}");
        }
    }

    #[test]
    fn few_writes_are_remembered() {
        let attempts = Attempts::default();
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().expect("a time");
        let begun = (0..2 * MAX_ATTEMPTS).filter(|i| attempts.begin(&i.to_string(), now)).count();
        assert_eq!(begun, MAX_ATTEMPTS);
        assert!(attempts.begin("x", now + RETRY), "room for others after a minute");
        assert_eq!(attempts.0.lock().len(), 1);
    }
}
