//! The report of what keeps a control plane from coming to rest.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_apimachinery::Error;
use coracle_apimachinery::error::Status;
use coracle_apiserver::serve::Observation;
use coracle_clock::UnderWay;
use serde_json::json;

use crate::Testing;
use crate::read::printed;
use crate::rest::DueTimers;

/// The maximum number of causes of each sort that are reported.
const MAX_CAUSES: usize = 10;

/// A reason for which a control plane is not at rest.
struct Cause {
    reason: &'static str,
    message: String,
}

impl Testing {
    /// Returns a 504 error with the names of the work in progress.
    ///
    /// - `waited`: the time that was waited
    /// - `unseen`: user agents that were waited for
    pub(crate) fn unsettled(&self, waited: Duration, writes: &Observation, unseen: &[String]) -> Error {
        let mut causes = Vec::new();
        let add = |causes: &mut Vec<Cause>, reason, message| causes.push(Cause { reason, message });
        for user_agent in unseen {
            add(
                &mut causes,
                "UserAgentNotSeen",
                format!("no client with the user agent {user_agent:?} has made a request"),
            );
        }
        let seconds = waited.as_secs_f64().max(0.001);
        for (writer, count) in writes.writes().into_iter().take(MAX_CAUSES) {
            let rate = count as f64 / seconds;
            let (agent, resource) = (writer.user_agent, writer.resource);
            add(
                &mut causes,
                "Writes",
                format!("{agent:?} writes {resource}: {count} writes, {rate:.0} a second"),
            );
        }
        for request in self.0.traffic.under_way(MAX_CAUSES) {
            add(&mut causes, "RequestUnderWay", format!("a request is under way: {request}"));
        }
        for (UnderWay { what, key }, count) in counted(self.0.clock.timers().under_way(MAX_CAUSES)) {
            let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
            add(&mut causes, "WorkUnderWay", format!("{what} works on {key:?}{times}"));
        }
        for watch in self.0.store.unfollowed().into_iter().take(MAX_CAUSES) {
            let bucket = watch.bucket;
            let name =
                watch.name.map_or_else(|| format!("a watch of {bucket}"), |watcher| watcher.name.to_string());
            add(&mut causes, "WatchNotRead", format!("{name} has events that it has not taken"));
        }
        for watch in self.0.traffic.beginnings(MAX_CAUSES) {
            add(
                &mut causes,
                "WatchNotRead",
                format!("{watch} has not taken what was there at its beginning"),
            );
        }
        if causes.is_empty() && self.is_at_rest(DueTimers::Awaited) {
            let ago = Duration::from_millis(self.0.store.since_write().as_millis() as u64);
            add(&mut causes, "Writes", format!("the last write was {} ago", printed(ago)));
        }
        if causes.is_empty() {
            add(&mut causes, "Unknown", "work without a name is under way".to_owned());
        }
        let messages: Vec<&str> = causes.iter().map(|cause| &*cause.message).collect();
        let message = format!("not settled after {}: {}", printed(waited), messages.join("; "));
        let causes: Vec<_> = causes
            .iter()
            .map(|Cause { reason, message }| json!({"reason": reason, "message": message}))
            .collect();
        Error::Status(Box::new(Status {
            code: 504,
            reason: "Timeout".into(),
            message,
            details: Some(json!({"causes": causes})),
            continue_token: None,
        }))
    }
}

fn counted(work: Vec<UnderWay>) -> BTreeMap<UnderWay, usize> {
    let mut counts = BTreeMap::new();
    work.into_iter().for_each(|work| *counts.entry(work).or_default() += 1);
    counts
}
