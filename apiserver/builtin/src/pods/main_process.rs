//! The main process of a container with a shell as its command: it ends with the shell that a
//! client is attached to.

use std::sync::Arc;
use std::time::Duration;

use coracle_apimachinery::Result;
use coracle_apiserver::registry::{Registry, Target};
use coracle_behavior::{EXITS, Ending, Exits};
use jiff::Timestamp;
use serde_json::Value;

use super::shell::ShellEnd;

/// The main process of a container.
pub struct MainProcess {
    pub registry: Arc<Registry>,
    /// The pod.
    pub target: Target,
    pub uid: String,
    pub container: String,
    /// Whether the process sees the end of the first client's input. Source: `stdinOnce` of a
    /// container.
    pub stdin_once: bool,
}

impl MainProcess {
    /// Ends the container with its shell, by the annotation that its kubelet follows.
    ///
    /// # Errors
    /// The pod is deleted, or cannot be written.
    pub async fn end(&self, ShellEnd { code, by_input }: ShellEnd) -> Result<()> {
        if by_input && !self.stdin_once {
            return Ok(());
        }
        let now = self.registry.now();
        let rewrite = |pod: &Value| {
            let mut ended = pod.clone();
            if pod["metadata"]["uid"] == *self.uid
                && let Some(after) = running_for(pod, &self.container, now)
            {
                let annotations = &mut ended["metadata"]["annotations"];
                let text = annotations[EXITS].as_str();
                let text = Exits::text_with(text, &self.container, Ending { after, code });
                annotations[EXITS] = text.into();
            }
            Ok(ended)
        };
        self.registry.rewrite(&self.target, false, rewrite).await
    }
}

/// Returns the time for which a container has been running; None if it is not.
fn running_for(pod: &Value, container: &str, now: Timestamp) -> Option<Duration> {
    let lists = ["containerStatuses", "ephemeralContainerStatuses"];
    let mut statuses = lists.iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let status = statuses.find(|status| status["name"] == container)?;
    let started: Timestamp = status["state"]["running"]["startedAt"].as_str()?.parse().ok()?;
    Some(now.duration_since(started).try_into().unwrap_or_default())
}
