//! Tunnels: a client's connection and another server's, after both switched protocols. Bytes are copied both ways until one side
//! ends, or this server does.

use http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::watch;

use super::body::Body;

/// In the extensions of a response with status 101.
#[derive(Clone)]
pub struct Tunnel {
    /// The client's connection.
    pub near: OnUpgrade,
    /// The other server's.
    pub far: OnUpgrade,
    /// Turns true when the server is about to go.
    pub closing: watch::Receiver<bool>,
}

/// Takes the tunnel off a response, to be opened when the connection is upgraded. All that the body keeps (the user's share, the
/// connection's place) stays taken until it ends.
pub fn detach(mut response: Response<Body>) -> Response<Body> {
    let Some(Tunnel { near, far, mut closing }) = response.extensions_mut().remove() else { return response };
    let held = std::mem::replace(response.body_mut(), Body::empty());
    tokio::spawn(async move {
        let copied = async {
            let (near, far) = tokio::try_join!(near, far)?;
            let (mut near, mut far) = (TokioIo::new(near), TokioIo::new(far));
            // An end that is not clean is an end all the same.
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            Ok::<(), hyper::Error>(())
        };
        tokio::select! {
            copied = copied => if let Err(error) = copied {
                tracing::debug!(%error, "the upgrade of a proxied connection failed");
            },
            _ = closing.wait_for(|closing| *closing) => {}
        }
        drop(held);
    });
    response
}
