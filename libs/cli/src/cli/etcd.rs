//! The check of the flags of an etcd cluster.

use coracle_apiserver::webhook::port_or;
use coracle_control_plane::Etcd;
use http::Uri;

use super::declared::Flags;

impl Flags<Etcd> {
    /// Returns the options of the etcd cluster; None if none is given.
    ///
    /// # Errors
    /// One line about the flag that is wrong.
    pub fn options(&self) -> Result<Option<Etcd>, String> {
        let Flags(etcd) = self;
        if etcd.servers.is_empty() {
            return Ok(None);
        }
        if etcd.cert_file.is_some() != etcd.key_file.is_some() {
            return Err("--etcd-certfile and --etcd-keyfile need each other".to_owned());
        }
        if let Some(other) = etcd.servers.iter().find(|url| !is_url(url)) {
            return Err(format!(
                "--etcd-servers: {other:?} is no http or https URL, with a port from 1 to 65535 if any"
            ));
        }
        Ok(Some(etcd.clone()))
    }
}

/// Returns `true` if a text is the URL of a server.
fn is_url(text: &str) -> bool {
    let Ok(url) = text.parse::<Uri>() else { return false };
    matches!(url.scheme_str(), Some("http" | "https"))
        && url.authority().is_some_and(|authority| port_or(authority, 80).is_some())
}
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(flags: &str) -> Result<Option<Etcd>, String> {
        let arguments = ["coracle", "serve"].into_iter().chain(flags.split_whitespace());
        let cli = Cli::try_parse_from(arguments).map_err(|error| error.to_string())?;
        match cli.command {
            Command::Serve { serve, .. } => serve.etcd.options(),
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
