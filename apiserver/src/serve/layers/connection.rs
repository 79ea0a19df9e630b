//! Connection: a request keeps its connection active until the client has all of the response.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use tokio::sync::Semaphore;

use super::RequestFilter;
use crate::serve::Body;
use crate::serve::connections::{Active, Connection};

/// Marks the connection of a request as active while the request and its response last. On a
/// connection, what is costly to render is rendered in the background; a client in this process
/// does it itself.
#[derive(Clone, Copy)]
pub struct KeepConnection<'a> {
    /// None in process.
    pub connection: Option<&'a Arc<Connection>>,
    pub renderers: &'a Arc<Semaphore>,
}

impl<B> RequestFilter<Request<B>> for KeepConnection<'_> {
    type Request = Request<B>;
    type State = Option<Active>;
    type Error = Infallible;

    fn request(&self, request: Request<B>) -> Result<(Request<B>, Option<Active>), Infallible> {
        Ok((request, self.connection.map(Connection::begin)))
    }

    fn response(&self, active: Option<Active>, response: Response<Body>) -> Response<Body> {
        match active {
            Some(active) => {
                response.map(|body| body.rendered_in_background(self.renderers).on_connection(active))
            }
            None => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::serve::connections::{ConnectionLimits, Connections};
    use crate::serve::layers::filter;

    #[tokio::test]
    async fn a_connection_is_active_until_the_response_is_over() {
        let connections =
            Connections::new(ConnectionLimits { total: 1, pending: 1, per_user: 1, reserve: 0 });
        let connection = connections.admit().expect("the first");
        let renderers = Arc::new(Semaphore::new(1));
        let keep = KeepConnection { connection: Some(&connection), renderers: &renderers };
        let during = |_: Request<()>| {
            assert!(connection.idle().is_none());
            std::future::ready(Ok(Response::new(Body::empty())))
        };
        assert!(connection.is_silent());
        let stack = ServiceBuilder::new().layer(filter(keep)).service_fn(during);
        let response = stack.oneshot(Request::new(())).await;
        assert!(!connection.is_silent() && connection.idle().is_none());
        drop(response);
        assert!(connection.idle().is_some());
    }
}
