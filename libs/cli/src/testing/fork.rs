//! `coracle fork` and `coracle forks`: control planes that begin with the state of a running one.
//!
//! A fork has the kubeconfig of its own address and the credentials of the caller, in a file below
//! the state of this user.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use coracle_testing_api::{FORK_PATHS, Fork, ForkList, ForkRequest};
use http::Uri;
use kube::config::{Kubeconfig, NamedAuthInfo, NamedCluster};
use tokio::net::TcpStream;

use super::Endpoints;
use crate::background;
use crate::kubeconfig_client::read;
use crate::output::{self, say};

/// The time that the server has to respond.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The time in which a fork on this machine accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes a fork, and prints the path of its kubeconfig.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// The control plane cannot be reached or refuses, or a file cannot be written.
pub async fn create(kubeconfig: Option<&Path>, request: &ForkRequest) -> Result<()> {
    let endpoints = Endpoints::new(kubeconfig, READ_TIMEOUT).await?;
    let fork: Fork = endpoints.post("forks", request).await?;
    let server = server_of(&fork, &endpoints.url).await;
    match write_kubeconfig(kubeconfig, &endpoints.url, &fork, &server) {
        Ok(file) => {
            say!("{}", file.display());
            Ok(())
        }
        Err(error) => {
            // Nobody knows how to reach it. The first error is the one to report.
            let _ = endpoints.delete(&format!("forks/{}", fork.name)).await;
            Err(error)
        }
    }
}

/// Writes the kubeconfig of a fork.
///
/// - `kubeconfig`: that of the caller; None for kubectl's
/// - `parent`: the URL by which the fork was asked for
/// - `server`: the URL of the fork
fn write_kubeconfig(kubeconfig: Option<&Path>, parent: &str, fork: &Fork, server: &str) -> Result<PathBuf> {
    let file = file_of(&directory(kubeconfig, parent)?, &fork.name)?;
    let text = with_credentials(fork, server, &read(kubeconfig)?)?;
    let written = coracle_private_fs::create_directory(file.parent().unwrap_or(Path::new(".")))
        .and_then(|()| coracle_private_fs::replace(&file, text.as_bytes()));
    written.map_err(|error| {
        anyhow!("{}: {error}; XDG_STATE_HOME names another directory for it", file.display())
    })?;
    Ok(file)
}

/// Prints the forks.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// The control plane cannot be reached or refuses.
pub async fn list(kubeconfig: Option<&Path>) -> Result<()> {
    let endpoints = Endpoints::new(kubeconfig, READ_TIMEOUT).await?;
    let ForkList { forks } = endpoints.get("forks").await?;
    output::write(&table(&forks));
    Ok(())
}

/// Ends a fork, and deletes its kubeconfig.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// There is no such fork, the control plane cannot be reached or refuses, or the file cannot be
/// deleted.
pub async fn delete(kubeconfig: Option<&Path>, name: &str) -> Result<()> {
    let endpoints = Endpoints::new(kubeconfig, READ_TIMEOUT).await?;
    let file = file_of(&directory(kubeconfig, &endpoints.url)?, name)?;
    endpoints.delete(&format!("forks/{name}")).await?;
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| file.display().to_string());
        }
        _ => {}
    }
    say!("{name} is deleted");
    Ok(())
}

/// Deletes the kubeconfigs of the forks of a server and of their forks, and nothing else that is in
/// their directory. It follows no address in a file: another server may have that address by now.
pub fn forget(server: &str) {
    let Ok(directory) = directory_of(server) else { return };
    let Ok(files) = std::fs::read_dir(&directory) else { return };
    for file in files.flatten().map(|entry| entry.path()) {
        if file.extension().is_some_and(|extension| extension == "yaml") {
            // A leftover file is harmless.
            let _ = std::fs::remove_file(file);
        }
    }
    let _ = std::fs::remove_dir(directory);
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')
}

/// Returns the directory with the kubeconfigs of the forks of a server.
fn directory_of(server: &str) -> Result<PathBuf> {
    let server = server.trim_start_matches("https://");
    if server.trim_matches('.').is_empty() {
        return Err(anyhow!("{server:?} is no address of a server"));
    }
    let server: String = server.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    Ok(forks()?.join(server))
}

/// Returns the directory with the kubeconfigs of the forks of a family: that of the kubeconfig in
/// use if it is the one of a fork, so that the files of all of them are deleted with the original
/// control plane, whichever fork ends before.
///
/// - `kubeconfig`: None for kubectl's
/// - `server`: the server of its current context
fn directory(kubeconfig: Option<&Path>, server: &str) -> Result<PathBuf> {
    let files = match kubeconfig {
        Some(file) => vec![file.to_owned()],
        None => {
            let files = std::env::var_os("KUBECONFIG").unwrap_or_default();
            std::env::split_paths(&files).collect()
        }
    };
    Ok(match directory_of_fork(&forks()?, &files, server) {
        Some(directory) => directory,
        None => directory_of(server)?,
    })
}

/// Returns the directory of the first of these files that is the kubeconfig of a server in a
/// directory below `forks`.
fn directory_of_fork(forks: &Path, files: &[PathBuf], server: &str) -> Option<PathBuf> {
    let forks = forks.canonicalize().ok()?;
    files.iter().find_map(|file| {
        let directory = file.canonicalize().ok()?.parent()?.to_owned();
        let clusters = || Kubeconfig::read_from(file).ok().map(|kubeconfig| kubeconfig.clusters);
        let is_of_server = |cluster: NamedCluster| cluster.cluster?.server.filter(|url| url == server);
        let is_below = directory.parent() == Some(&forks);
        (is_below && clusters()?.into_iter().find_map(is_of_server).is_some()).then_some(directory)
    })
}

/// Returns the directory of the directories with kubeconfigs of forks.
fn forks() -> Result<PathBuf> {
    // No control plane in the background has a name that begins with a dot.
    Ok(background::base()?.join(".forks"))
}

/// Returns the file with the kubeconfig of a fork.
fn file_of(directory: &Path, name: &str) -> Result<PathBuf> {
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(anyhow!("{name:?} is no name of a fork"));
    }
    Ok(directory.join(format!("{name}.yaml")))
}

/// Returns the URL at which a fork is reached from here. If the control plane is reached by another
/// address, such as a published port, the fork is reached below that address.
///
/// - `parent`: the URL of the control plane or of a fork, by which the fork was asked for
async fn server_of(fork: &Fork, parent: &str) -> String {
    let authority = |url: &str| url.parse::<Uri>().ok()?.authority().cloned();
    let (own, known) = (authority(&fork.server), authority(parent));
    if let Some((own, known)) = own.zip(known)
        && own.host() == known.host()
        && let Ok(Ok(_)) = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(own.as_str())).await
    {
        return fork.server.clone();
    }
    let below = parent.split(FORK_PATHS).next().unwrap_or_default();
    format!("{below}{}", fork.path)
}

/// Builds a kubeconfig of a fork for the user of the current context of another one.
fn with_credentials(fork: &Fork, server: &str, caller: &Kubeconfig) -> Result<String> {
    let mut kubeconfig = Kubeconfig::from_yaml(&fork.kubeconfig).context("the kubeconfig of the fork")?;
    let current = caller.current_context.as_deref().unwrap_or_default();
    let context = caller.contexts.iter().find(|context| context.name == current);
    let user = context.and_then(|context| context.context.as_ref()?.user.clone()).unwrap_or_default();
    let known = caller.auth_infos.iter().find(|known| known.name == user);
    let auth_info = known.and_then(|known| known.auth_info.clone()).unwrap_or_default();
    let user = if user.is_empty() { "default".to_owned() } else { user };
    kubeconfig.auth_infos =
        vec![NamedAuthInfo { name: user.clone(), auth_info: Some(auth_info), ..Default::default() }];
    for context in kubeconfig.contexts.iter_mut().filter_map(|context| context.context.as_mut()) {
        context.user = Some(user.clone());
    }
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|cluster| cluster.cluster.as_mut()) {
        cluster.server = Some(server.to_owned());
    }
    let document = serde_json::to_value(&kubeconfig).context("the kubeconfig of the fork")?;
    Ok(coracle_kubeconfig::text(&document))
}

/// Formats the forks in columns.
fn table(forks: &[Fork]) -> String {
    if forks.is_empty() {
        return "no forks\n".to_owned();
    }
    let name = forks.iter().map(|fork| fork.name.len()).max().unwrap_or_default().max("NAME".len());
    let server = forks.iter().map(|fork| fork.server.len()).max().unwrap_or_default();
    let mut text = String::new();
    let mut line = |columns: [&str; 4]| {
        let [first, second, third, last] = columns;
        // Writing to a text does not fail.
        let _ = writeln!(text, "{first:name$}  {second:server$}  {third:16}  {last}");
    };
    line(["NAME", "SERVER", "RESOURCE VERSION", "PARENT"]);
    for fork in forks {
        let parent = if fork.parent.is_empty() { "-" } else { &fork.parent };
        line([&fork.name, &fork.server, &fork.resource_version, parent]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork() -> Fork {
        let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: coracle-a\nclusters:\n- name: coracle-a\n  cluster: {server: \
            'https://127.0.0.1:2', certificate-authority-data: Y2E=}\ncontexts:\n- name: coracle-a\n  context: {cluster: coracle-a, user: ''}\n";
        Fork {
            name: "a".to_owned(),
            parent: String::new(),
            server: "https://127.0.0.1:2".to_owned(),
            path: "/coracle/forks/a".to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            resource_version: "7".to_owned(),
        }
    }

    #[test]
    fn a_fork_has_the_credentials_of_the_caller() {
        let caller = "apiVersion: v1\nkind: Config\ncurrent-context: mine\ncontexts:\n- name: mine\n  context: {cluster: c, user: me}\nusers:\n\
            - name: other\n  user: {token: secret}\n- name: me\n  user: {token: mine, client-key-data: a2V5}\n";
        let caller = Kubeconfig::from_yaml(caller).unwrap();
        let text = with_credentials(&fork(), "https://127.0.0.1:2", &caller).unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        let server = kubeconfig.clusters[0].cluster.as_ref().unwrap().server.as_deref();
        assert_eq!(server, Some("https://127.0.0.1:2"));
        assert_eq!(kubeconfig.contexts[0].context.as_ref().unwrap().user.as_deref(), Some("me"));
        assert!(text.contains("mine") && text.contains("a2V5") && !text.contains("secret"), "{text}");
    }

    #[tokio::test]
    async fn a_fork_that_is_not_reached_is_below_the_parent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let reached = Fork { server: format!("https://127.0.0.1:{port}"), ..fork() };
        assert_eq!(server_of(&reached, "https://127.0.0.1:1").await, reached.server);
        // A published port of the same machine, another host, and a fork that is reached below
        // another address.
        for (parent, want) in [
            ("https://127.0.0.1:6443", "https://127.0.0.1:6443/coracle/forks/a"),
            ("https://cluster:6443", "https://cluster:6443/coracle/forks/a"),
            ("https://cluster:6443/coracle/forks/b", "https://cluster:6443/coracle/forks/a"),
        ] {
            let fork = Fork { server: "https://127.0.0.1:1".to_owned(), ..fork() };
            assert_eq!(server_of(&fork, parent).await, want);
        }
    }

    #[test]
    fn files_of_forks_stay_where_they_belong() {
        for name in ["", ".", "..", "a/b", "../a", "a b", "a\0"] {
            assert!(file_of(Path::new("forks"), name).is_err(), "{name:?}");
        }
        for server in ["https://..", "https://.", "https://", ".."] {
            assert!(directory_of(server).is_err(), "{server:?}");
        }
        let directory = directory_of("https://[::1]:6443/x/../y").unwrap();
        assert!(directory.ends_with(".forks/---1--6443-x-..-y"), "{}", directory.display());
    }

    #[test]
    fn files_of_a_family_are_in_one_directory() {
        let temporary = tempfile::tempdir().unwrap();
        let (forks, other) = (temporary.path().join(".forks"), temporary.path().join("other"));
        let of_family = forks.join("127.0.0.1-1");
        std::fs::create_dir_all(&of_family).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        let write = |directory: &Path| {
            let file = directory.join("a.yaml");
            std::fs::write(&file, fork().kubeconfig).unwrap();
            file
        };
        let (known, copy) = (write(&of_family), write(&other));
        let find = |files: &[&Path], server| {
            let files: Vec<PathBuf> = files.iter().map(|file| file.to_path_buf()).collect();
            directory_of_fork(&forks, &files, server)
        };
        let (server, missing) = ("https://127.0.0.1:2", temporary.path().join("none"));
        assert_eq!(find(&[&missing, &copy, &known], server), of_family.canonicalize().ok());
        assert_eq!(find(&[&missing, &copy], server), None, "it is no file of this command");
        assert_eq!(find(&[&known], "https://127.0.0.1:3"), None, "it is of another server");
    }

    #[test]
    fn forks_are_in_columns() {
        assert_eq!(table(&[]), "no forks\n");
        let want = "NAME  SERVER               RESOURCE VERSION  PARENT\na     https://127.0.0.1:2  7                 -\n";
        assert_eq!(table(&[fork()]), want);
    }
}
