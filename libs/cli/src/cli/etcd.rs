//! The flags of an etcd cluster, with kube-apiserver's names and meanings.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use coracle_apiserver::webhook::port_or;
use coracle_control_plane::{Etcd, range};
use http::Uri;

use crate::range::within;

#[derive(Debug, Args)]
pub struct EtcdFlags {
    /// Store all objects in this etcd cluster instead, which other servers may share: URL,URL. Keys and volumes stay in the data
    /// directory; servers that share a cluster need the same keys, so copy `pki/`.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// The authorities that signed the certificates of the etcd servers.
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd.
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    etcd_certfile: Option<PathBuf>,
    /// The key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    etcd_keyfile: Option<PathBuf>,
    /// What all keys in etcd start with [default: /registry].
    #[arg(long, value_name = "PREFIX", requires = "etcd_servers")]
    etcd_prefix: Option<String>,
    /// How often the history in etcd is compacted, by one of the servers; 0 for never [default: 5m].
    #[arg(long, value_name = "DURATION", requires = "etcd_servers", 
          value_parser = within(range::COMPACTION_INTERVAL))]
    etcd_compaction_interval: Option<Duration>,
}

impl EtcdFlags {
    /// Whether a cluster is given.
    pub fn is_used(&self) -> bool {
        !self.etcd_servers.is_empty()
    }

    /// The cluster; None if none is given.
    ///
    /// # Errors
    /// One line about the flag that is wrong.
    pub fn options(&self) -> Result<Option<Etcd>, String> {
        if !self.is_used() {
            return Ok(None);
        }
        if self.etcd_certfile.is_some() != self.etcd_keyfile.is_some() {
            return Err("--etcd-certfile and --etcd-keyfile need each other".to_owned());
        }
        if let Some(other) = self.etcd_servers.iter().find(|url| !is_url(url)) {
            return Err(format!(
                "--etcd-servers: {other:?} is no http or https URL, with a port from 1 to 65535 if any"
            ));
        }
        let default = Etcd::default();
        Ok(Some(Etcd {
            servers: self.etcd_servers.clone(),
            ca_file: self.etcd_cafile.clone(),
            cert_file: self.etcd_certfile.clone(),
            key_file: self.etcd_keyfile.clone(),
            prefix: self.etcd_prefix.clone().unwrap_or(default.prefix),
            compaction_interval: self.etcd_compaction_interval.unwrap_or(default.compaction_interval),
        }))
    }
}

/// Whether this is the URL of a server.
fn is_url(text: &str) -> bool {
    let Ok(url) = text.parse::<Uri>() else { return false };
    matches!(url.scheme_str(), Some("http" | "https"))
        && url.authority().is_some_and(|authority| port_or(authority, 80).is_some())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(flags: &str) -> Result<Option<Etcd>, String> {
        let arguments = ["coracle", "serve"].into_iter().chain(flags.split_whitespace());
        let cli = Cli::try_parse_from(arguments).map_err(|error| error.to_string())?;
        match cli.command {
            Command::Serve(serve) => serve.etcd.options(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_have_the_meaning_of_kube_apiservers() {
        assert!(parse("").unwrap().is_none());
        let etcd = parse("--etcd-servers http://a:2379,https://b:2379").unwrap().unwrap();
        assert_eq!(etcd.servers, ["http://a:2379", "https://b:2379"]);
        assert_eq!((&*etcd.prefix, etcd.compaction_interval), ("/registry", Duration::from_secs(300)));
        let etcd = parse("--etcd-servers http://a:1 --etcd-prefix /p --etcd-compaction-interval 0")
            .unwrap()
            .unwrap();
        assert_eq!((&*etcd.prefix, etcd.compaction_interval), ("/p", Duration::ZERO));
    }

    #[test]
    fn flags_that_do_not_fit_are_refused() {
        for (flags, want) in [
            ("--etcd-servers http://a:1 --ephemeral", "cannot be used with"),
            ("--etcd-prefix /p", "--etcd-servers"),
            ("--etcd-servers a:2379", "no http or https URL"),
            ("--etcd-servers https://a:1 --etcd-certfile c.pem", "need each other"),
        ] {
            let error = parse(flags).expect_err(flags);
            assert!(error.contains(want), "{flags}: {error}");
        }
    }
}
