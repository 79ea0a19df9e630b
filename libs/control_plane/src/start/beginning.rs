//! The beginning of a start: what is there before anything is written.

use std::sync::Arc;

use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::apiextensions::KnownDefinitions;
use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::serve::Refusal;
use coracle_builtin::rbac::RbacAuthorizer;
use coracle_storage::Store;

use super::access::Keys;
use super::background::RemoteApis;
use super::blocking::blocking;
use super::origin::Origin;
use super::phase::Started;
use super::preparation::Preparation;
use super::registry::{self, InitialObjects};
use super::storage;
use crate::error::Error;
use crate::kinds::Kinds;
use crate::opened;
use crate::options::Options;

/// The parts that a control plane begins with.
pub struct Beginning {
    pub preparation: Preparation,
    /// The resources that are served.
    pub resources: Arc<SharedResourceTable>,
    pub store: Store<ObjectIndex>,
    pub keys: Keys,
    pub rbac: Arc<RbacAuthorizer>,
    /// The initial objects; None if the store has them already.
    pub initial_objects: Option<InitialObjects>,
    /// The definitions of these resources, as far as they were read.
    pub known_definitions: KnownDefinitions,
    /// The API of aggregated servers, as far as it is known.
    pub remote: RemoteApis,
    /// The requests that were refused before.
    pub refusals: Vec<Refusal>,
}

impl Beginning {
    /// Begins an original control plane. The store comes last, so that an error in the
    /// configuration creates no files.
    ///
    /// # Errors
    /// The configuration is wrong, the port is taken, or the store cannot be opened.
    pub async fn new(options: &Options, kinds: Kinds, started: &mut Started) -> Result<Beginning, Error> {
        let opened = match options.open.clone() {
            Some(record) => Some(blocking(move || opened::read(&record)).await?),
            None => None,
        };
        let preparation = Preparation::new(options, None, opened.as_ref().map(|opened| opened.now)).await?;
        let initial_objects = opened.is_none().then(|| registry::initial_objects(options, &preparation));
        // Keys come after the log, which locks the data directory. The table takes about as long.
        let files = {
            let options = options.clone();
            blocking(move || {
                let log = match options.open {
                    None => storage::open_log(&options)?,
                    Some(_) => None,
                };
                Ok((log, Keys::new(&options)?))
            })
        };
        let resources = SharedResourceTable::new((kinds.built_in)());
        let (log, keys) = files.await?;
        let mut refusals = Vec::new();
        let store = match opened {
            None => storage::open(options, log, resources.clone(), started).await?,
            Some(history) => {
                if history.lost > 0 {
                    tracing::warn!(entries = history.lost, "the record is not complete");
                }
                refusals = history.refusals.into();
                storage::open_record(history.log, history.authors, resources.clone(), started).await?
            }
        };
        let rbac = Arc::new(RbacAuthorizer::new(store.clone(), &resources.load()));
        let known_definitions = KnownDefinitions::default();
        Ok(Beginning {
            preparation,
            resources,
            store,
            keys,
            rbac,
            initial_objects,
            known_definitions,
            remote: RemoteApis::default(),
            refusals,
        })
    }

    /// Begins a fork. What was read from the objects of the origin comes before its store, and may
    /// be older; the clock comes after it, so that no object is of a later time.
    ///
    /// # Errors
    /// There is no port, or the store of the origin is closed.
    pub async fn with(origin: &Origin, options: &Options, started: &mut Started) -> Result<Beginning, Error> {
        let (resources, rbac) = (origin.resources.fork(), origin.rbac.snapshot());
        let store = storage::fork(origin, options, resources.clone(), started)?;
        let rbac = Arc::new(RbacAuthorizer::resume(rbac, store.clone(), &resources.load()));
        let preparation = Preparation::new(options, Some(origin), None).await?;
        let known_definitions = origin.known_definitions.clone();
        let (initial_objects, refusals) = (None, Vec::new());
        Ok(Beginning {
            preparation,
            resources,
            store,
            keys: Keys::fork(origin)?,
            rbac,
            initial_objects,
            known_definitions,
            remote: origin.remote.fork(),
            refusals,
        })
    }
}
