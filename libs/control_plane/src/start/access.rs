//! Access: keys and certificates, and what authenticates and authorizes requests by them.

use std::net::SocketAddr;
use std::sync::Arc;

use coracle_apiserver::access::authenticate::TokenAuthenticator;
use coracle_apiserver::access::authorize::Authorizer;
use coracle_apiserver::access::certificates::Certificates;
use coracle_apiserver::access::front_proxy::FrontProxy;
use coracle_apiserver::access::jwt::{SigningKey, VerificationKey};
use coracle_apiserver::access::tls::Tls;
use coracle_apiserver::access::token_file::TokenFile;
use coracle_apiserver::webhook::{ClientManager, OwnServer};
use coracle_builtin::forwarding::ForwardAccess;
use coracle_builtin::rbac::RbacAuthorizer;
use coracle_builtin::services::EndpointServiceResolver;
use coracle_clock::Clock;
use coracle_private_fs::NewFiles;
use coracle_storage::StoreError;
use futures::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;

use super::blocking::blocking;
use super::origin::Origin;
use super::phase::{Phase, Started};
use crate::error::Error;
use crate::options::{Etcd, Options, ServiceAccountIssuer};

/// The keys and certificates that a server begins with.
pub struct Keys {
    certificates: Certificates,
    signing_key: SigningKey,
    front_proxy: FrontProxy,
    /// The files of new keys, which are not written yet.
    new_files: NewFiles,
}

impl Keys {
    /// Reads keys and certificates, or creates those that are missing. Blocks.
    ///
    /// # Errors
    /// One of them cannot be read or created.
    pub fn new(options: &Options) -> Result<Keys, Error> {
        let real_time = real_time();
        let mut new_files = NewFiles::default();
        let certificates = certificates(options, &real_time, &mut new_files)?;
        let signing_key = signing_key(options, &mut new_files)?;
        let front_proxy = FrontProxy::generate(real_time.now().into())?;
        Ok(Keys { certificates, signing_key, front_proxy, new_files })
    }

    /// Returns the keys of a fork.
    ///
    /// # Errors
    /// One of them cannot be created.
    pub fn fork(origin: &Origin) -> Result<Keys, Error> {
        let real_time = real_time();
        Ok(Keys {
            certificates: origin.certificates.fork(&real_time)?,
            signing_key: origin.signing_key.fork()?,
            front_proxy: FrontProxy::generate(real_time.now().into())?,
            new_files: NewFiles::default(),
        })
    }
}

/// Returns the clock of certificates: they are valid by the time of those who verify them.
fn real_time() -> Clock {
    Clock::system()
}

/// The keys and certificates of a server. Nothing of them runs.
pub struct Access {
    pub certificates: Arc<Certificates>,
    pub tls: Arc<Tls>,
    pub authorizer: Arc<Authorizer>,
    /// The roles that are stored, whether they decide or not.
    pub rbac: Arc<RbacAuthorizer>,
    pub signing_key: Arc<SigningKey>,
    /// The authenticators of tokens that are known before there is a registry.
    pub tokens: Vec<Box<dyn TokenAuthenticator>>,
    /// The authority of the front proxy, in PEM.
    pub front_proxy_ca: String,
    /// The clients of webhooks and aggregated API servers, with the certificate of the front proxy.
    pub clients: Arc<ClientManager>,
    /// The addresses that ports of simulated pods may lead to.
    pub forward_access: Arc<ForwardAccess>,
    /// The addresses of what this server is a fork of.
    pub ancestors: Vec<SocketAddr>,
    /// The ports that those of simulated pods may not lead to, in forks.
    pub refused_ports: Vec<u16>,
}

impl Access {
    /// Makes what authenticates and authorizes requests by these keys. Returns the files of new
    /// keys, too, which are not written yet.
    ///
    /// - `listener`: the address of this server
    ///
    /// # Errors
    /// A certificate cannot be used.
    pub fn new(
        options: &Options,
        keys: Keys,
        token_file: Option<TokenFile>,
        origin: Option<&Origin>,
        rbac: Arc<RbacAuthorizer>,
        listener: SocketAddr,
    ) -> Result<(Access, NewFiles), Error> {
        let mut refused_ports: Vec<u16> = options.etcd.iter().flat_map(Etcd::ports).collect();
        refused_ports.extend(origin.iter().flat_map(|origin| origin.refused_ports.iter().copied()));
        let forward_access = Arc::new(ForwardAccess::new(
            options.allow_forward.as_ref(),
            listener,
            refused_ports.iter().copied(),
        ));
        refused_ports.push(listener.port());
        let Keys { certificates, signing_key, front_proxy, new_files } = keys;
        let (certificates, signing_key) = (Arc::new(certificates), Arc::new(signing_key));
        let tls = Arc::new(certificates.tls()?);
        let authorizer = Arc::new(options.mode.authorizer(&rbac));
        let mut tokens: Vec<Box<dyn TokenAuthenticator>> = Vec::new();
        if let Some(file) = token_file {
            tokens.push(Box::new(file.with_audiences(signing_key.issuers().to_vec())));
        }
        let services = EndpointServiceResolver::new(
            options.webhook_service_urls.iter().cloned(),
            forward_access.clone(),
        );
        let clients =
            ClientManager::new(services).with_front_proxy(vec![front_proxy.certificate], front_proxy.key);
        let mut ancestors = Vec::new();
        if let Some(origin) = origin {
            ancestors.extend(origin.ancestors.iter().chain([&origin.address]));
        }
        let own = OwnServer { address: listener, ca_pem: certificates.ca_pem().into() };
        let clients = clients.with_taken_over_servers(ancestors.clone(), own);
        let access = Access {
            certificates,
            tls,
            authorizer,
            rbac,
            signing_key,
            tokens,
            front_proxy_ca: front_proxy.ca_pem,
            clients: Arc::new(clients),
            forward_access,
            ancestors,
            refused_ports,
        };
        Ok((access, new_files))
    }
}

/// The wait until files are written, so that a start that fails writes none after its end.
struct Writing(oneshot::Receiver<()>);

impl Phase for Writing {
    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        // It ends when the sender is dropped.
        self.0.map(|_| Ok(())).boxed()
    }
}

/// Begins to write files on another thread. The future waits until they are on disk.
pub fn write(files: NewFiles, started: &mut Started) -> BoxFuture<'static, Result<(), Error>> {
    if files.is_empty() {
        return std::future::ready(Ok(())).boxed();
    }
    let (writing, written) = oneshot::channel();
    started.push(Writing(written));
    let write = move || {
        let _writing: oneshot::Sender<()> = writing;
        files.write().map_err(|(path, cause)| Error::File { path, cause })
    };
    blocking(write).boxed()
}

fn signing_key(options: &Options, new_files: &mut NewFiles) -> Result<SigningKey, Error> {
    let ServiceAccountIssuer { signing_key_file, key_files, issuers } = &options.service_accounts;
    let key = match (signing_key_file, &options.data_dir) {
        (Some(file), _) => SigningKey::in_file(file)?,
        (None, None) => SigningKey::ephemeral()?,
        (None, Some(directory)) => SigningKey::in_folder(&directory.join("pki"), new_files)?,
    };
    let mut others = Vec::new();
    for file in key_files {
        others.extend(VerificationKey::in_file(file)?);
    }
    Ok(key.with_verification_keys(others).with_issuers(issuers.clone()))
}

fn certificates(options: &Options, clock: &Clock, new_files: &mut NewFiles) -> Result<Certificates, Error> {
    let mut names = options.tls_san.clone();
    let address = options.listen.ip();
    if !address.is_unspecified() {
        // The kubeconfig names it.
        names.push(address.to_string());
    }
    let mut certificates = match &options.data_dir {
        None => Certificates::ephemeral(&names, clock)?,
        Some(directory) => Certificates::in_folder(&directory.join("pki"), &names, clock, new_files)?,
    };
    if let Some((certificate, key)) = &options.serving_files {
        certificates = certificates.with_serving_files(certificate, key, new_files)?;
    }
    if let Some(file) = &options.client_ca_file {
        certificates = certificates.with_client_ca_file(file)?;
    }
    Ok(certificates)
}
