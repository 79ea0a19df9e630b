//! Impersonation: as which other user a request is to be made.

use super::RequestFilter;
use crate::access::authorize::Authorizer;
use crate::access::impersonate::Impersonator;
use crate::serve::exchange::{AuthenticatedRequest, RequestRefusal};

/// Replaces the user of a request by the one whom it impersonates, if the user may do that.
#[derive(Clone, Copy)]
pub struct Impersonate<'a> {
    pub authorizer: &'a Authorizer,
    pub impersonator: &'a Impersonator,
}

impl<B> RequestFilter<AuthenticatedRequest<B>> for Impersonate<'_> {
    type Request = AuthenticatedRequest<B>;
    type State = ();
    type Error = RequestRefusal;

    fn request(
        &self,
        request: AuthenticatedRequest<B>,
    ) -> Result<(AuthenticatedRequest<B>, ()), RequestRefusal> {
        let AuthenticatedRequest { context, user, body } = request;
        self.authorizer.refresh();
        let headers = &context.parts.headers;
        let impersonated =
            self.impersonator.impersonate(headers, &user, &context.attributes(), self.authorizer);
        let impersonated = impersonated.map_err(RequestRefusal::Denied)?;
        if let Some(impersonated) = &impersonated {
            context.audit.log_impersonated_user(impersonated);
            // A request is made by one user.
            drop(context.impersonated.set(impersonated.user.clone()));
        }
        let user = impersonated.map_or(user, |impersonated| impersonated.user);
        Ok((AuthenticatedRequest { context, user, body }, ()))
    }
}
