//! `coracle why` and `coracle tree`: why an object is still there, not ready or deleted, and who
//! owns it.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use coracle_testing_api::{Explanation, Tree};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Endpoints;
use crate::cli::ObjectFlags;
use crate::output;

/// The time that the server has to respond.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Prints the explanation of an object.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// Nothing is known of the object, or the control plane cannot be reached or refuses.
pub async fn explain(kubeconfig: Option<&Path>, object: &ObjectFlags) -> Result<()> {
    print::<Explanation>("why", kubeconfig, object).await
}

/// Prints an object with its owners and what they own.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// The errors of [`explain`].
pub async fn tree(kubeconfig: Option<&Path>, object: &ObjectFlags) -> Result<()> {
    print::<Tree>("tree", kubeconfig, object).await
}

async fn print<T>(endpoint: &str, kubeconfig: Option<&Path>, flags: &ObjectFlags) -> Result<()>
where
    T: DeserializeOwned + Serialize + Display,
{
    let (resource, name) = place(&flags.object, flags.name.as_deref())?;
    let endpoints = Endpoints::new(kubeconfig, READ_TIMEOUT).await?;
    let namespace = flags.namespace.as_deref().unwrap_or_else(|| endpoints.client.default_namespace());
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("resource", resource), ("namespace", namespace), ("name", name)])
        .finish();
    let answer: T = endpoints.get(&format!("{endpoint}?{query}")).await?;
    let text = |answer: &T| format!("{answer:columns$}", columns = columns()).trim_end().to_owned() + "\n";
    output::write(&flags.output.format(&answer, text)?);
    Ok(())
}

/// Returns the columns of the lines of an explanation: those of the terminal, within limits.
fn columns() -> usize {
    const ELSEWHERE: usize = 100;
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { ELSEWHERE } else { columns.clamp(40, 140) }
}

/// Parses the resource and the name, which are one argument or two.
pub(super) fn place<'a>(object: &'a str, name: Option<&'a str>) -> Result<(&'a str, &'a str)> {
    match (object.split_once('/'), name) {
        (Some((resource, name)), None) if !resource.is_empty() && !name.is_empty() => Ok((resource, name)),
        (None, Some(name)) if !object.is_empty() && !name.is_empty() => Ok((object, name)),
        _ => bail!("an object is named TYPE/NAME or TYPE NAME, such as pod/web-0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        for (object, name, want) in [
            ("pod/web-0", None, Some(("pod", "web-0"))),
            ("sts", Some("web"), Some(("sts", "web"))),
            (
                "clusterroles.rbac.authorization.k8s.io/a/b",
                None,
                Some(("clusterroles.rbac.authorization.k8s.io", "a/b")),
            ),
            ("pod", None, None),
            ("pod/", None, None),
            ("/web", None, None),
            ("pod/web", Some("web"), None),
            ("pod", Some(""), None),
        ] {
            assert_eq!(place(object, name).ok(), want, "{object} {name:?}");
        }
    }
}
