//! Connections that leave HTTP: a response with status 101, and what is served over the connection
//! from then on.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderMap, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::body::Body;

/// Serves a connection that left HTTP, until it returns or the server shuts down. The connection is
/// closed when it is dropped.
pub type ServeUpgraded = Box<dyn FnOnce(TokioIo<Upgraded>) -> BoxFuture<'static, ()> + Send>;

/// An upgrade, in the extensions of a response with status 101.
#[derive(Clone)]
struct Upgrade {
    connection: OnUpgrade,
    /// Taken by the one who detaches it; extensions have to be cloned.
    serve: Arc<Mutex<Option<ServeUpgraded>>>,
    /// Turns true when the server shuts down.
    closing: watch::Receiver<bool>,
}

/// Creates the response that switches protocols.
///
/// - `headers`: those of the response
/// - `closing`: turns true when the server shuts down
pub fn switch(
    connection: OnUpgrade,
    headers: HeaderMap,
    serve: ServeUpgraded,
    closing: watch::Receiver<bool>,
) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    response.extensions_mut().insert(Upgrade {
        connection,
        serve: Arc::new(Mutex::new(Some(serve))),
        closing,
    });
    response
}

/// Takes the service off a response made by [`switch`], to be started when the connection is
/// upgraded. All that the body keeps (the user's share, the connection's place) stays taken until
/// it ends.
pub fn detach(mut response: Response<Body>) -> Response<Body> {
    let Some(Upgrade { connection, serve, mut closing }) = response.extensions_mut().remove() else {
        return response;
    };
    let Some(serve) = serve.lock().take() else { return response };
    let held = std::mem::replace(response.body_mut(), Body::empty());
    tokio::spawn(async move {
        let served = async {
            match connection.await {
                Ok(connection) => serve(TokioIo::new(connection)).await,
                Err(error) => tracing::debug!(%error, "the upgrade of a connection failed"),
            }
        };
        tokio::select! {
            () = served => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
        drop(held);
    });
    response
}
