//! The origin of a fork: what it begins with beside the objects.

use std::net::SocketAddr;
use std::sync::Arc;

use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::access::certificates::Certificates;
use coracle_apiserver::access::jwt::SigningKey;
use coracle_apiserver::access::token_file::TokenFile;
use coracle_apiserver::apiextensions::KnownDefinitions;
use coracle_apiserver::registry::ObjectIndex;
use coracle_builtin::rbac::RbacAuthorizer;
use coracle_clock::Clock;
use coracle_controller_runtime::cache::CachedObjects;
use coracle_storage::Store;

use super::background::RemoteApis;
use super::volumes::VolumeDirectories;
use crate::forks::Lineage;
use crate::kinds::Kinds;
use crate::options::Options;
use crate::recording::Recording;

/// A control plane that forks begin with.
pub struct Origin {
    pub options: Options,
    pub kinds: Kinds,
    /// The name of the fork; "" for the original control plane.
    pub fork: String,
    pub lineage: Lineage,
    pub store: Store<ObjectIndex>,
    /// The resources, those of definitions too.
    pub resources: Arc<SharedResourceTable>,
    /// The definitions of these resources, which forks need not read.
    pub known_definitions: KnownDefinitions,
    pub remote: RemoteApis,
    pub rbac: Arc<RbacAuthorizer>,
    pub certificates: Arc<Certificates>,
    pub signing_key: Arc<SigningKey>,
    pub token_file: Option<TokenFile>,
    pub clock: Clock,
    /// The recording of it, if there is one.
    pub recording: Option<Recording>,
    /// The caches of its controllers.
    pub cached: CachedObjects,
    /// The files of its volumes.
    pub volumes: VolumeDirectories,
    pub address: SocketAddr,
    /// The addresses of what it is a fork of, and of what that is one of.
    pub ancestors: Vec<SocketAddr>,
    /// The ports that simulated pods may not lead to: its own, and those of its etcd and of what it
    /// is a fork of.
    pub refused_ports: Vec<u16>,
}
