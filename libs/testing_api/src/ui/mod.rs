//! The live page below `/ui/`: its assets, and the data that it reads.
//!
//! | path | |
//! | --- | --- |
//! | `GET /ui/`, `/ui/app.js` ... | the page |
//! | `GET /ui/login?token=T` | exchanges a one-time link for a cookie |
//! | `GET /ui/data/picture?at=REVISION` | all objects at a revision: [`Picture`] |
//! | `GET /ui/data/picture?watch=1&since=REVISION` | the changes since: a line of JSON for each, [`Changes`](coracle_ui::Changes) |
//! | `GET /ui/data/object?resource=R&namespace=N&name=N&at=REVISION` | an object, without the values of Secrets |
//! | `GET /ui/data/why?...&at=REVISION` | as `/coracle/v1alpha1/why` |
//! | `GET /ui/data/log?...` | the versions of an object, or the newest changes of all |
//! | `GET /ui/data/events?at=REVISION&uid=UID` | the Events, of all objects or of one |

mod events;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::access::UserInfo;
use coracle_apiserver::access::authenticate::{MASTERS, RequestAuthenticator};
use coracle_apiserver::serve::{Body, PathRequest, Paths, RespondToPath};
use coracle_clock::Clock;
use coracle_storage::Revision;
use coracle_ui::{
    Asset, LOGIN_PATH, LOGIN_REFUSED, PREFIX, Picture, SECURITY_HEADERS, Sessions, UI_USER, asset, etag,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::log::LogRequest;
use crate::why::{ObjectName, StoredObjects};
use crate::{Testing, guard, json as json_response, read};

pub use stream::MAX_STREAMS;

impl Testing {
    /// Returns the live page of the control plane.
    ///
    /// - `names`: the names of the server, besides `localhost` and its addresses
    pub fn page(self, names: Vec<String>, sessions: Arc<Sessions>) -> Paths {
        let names: Arc<[String]> = names.into();
        let respond: RespondToPath = Arc::new(move |request| {
            let (testing, names, sessions) = (self.clone(), names.clone(), sessions.clone());
            Box::pin(async move {
                let response = testing.respond_of_page(&names, &sessions, &request).await;
                let mut response = response.unwrap_or_else(|error| request.respond_with(&error));
                for (name, value) in SECURITY_HEADERS {
                    response
                        .headers_mut()
                        .insert(HeaderName::from_static(name), HeaderValue::from_static(value));
                }
                Ok(response)
            })
        });
        Paths { prefix: PREFIX, respond }
    }

    async fn respond_of_page(
        &self,
        names: &[String],
        sessions: &Sessions,
        request: &PathRequest<'_>,
    ) -> Result<Response<Body>> {
        guard::check(request, names)?;
        if !matches!(request.parts.method, Method::GET | Method::HEAD) {
            return Err(Error::MethodNotAllowed);
        }
        // A HEAD request does not use up the link.
        if request.path == LOGIN_PATH && request.parts.method == Method::GET {
            return log_in(sessions, request.query);
        }
        let Some(name) = request.path.strip_prefix(PREFIX) else { return redirect("ui/") };
        match name.strip_prefix("data/") {
            Some(name) => self.respond_with_data(name, request.query).await,
            None => {
                let asset = asset(name).ok_or(Error::PageNotFound)?;
                Ok(respond_with(asset, request.parts.headers.get(header::IF_NONE_MATCH)))
            }
        }
    }

    async fn respond_with_data(&self, name: &str, query: &Query) -> Result<Response<Body>> {
        match name {
            "picture" if query.flag("watch") == Some(true) => {
                self.picture_stream(revision(query, "since")?).await
            }
            "picture" => json_response(&self.picture(revision(query, "at")?).await?),
            "object" => {
                let object = ObjectName::read(query)?;
                let read = move |objects: &StoredObjects| objects.read(&object);
                let (resource, mut object) = self.read_at(revision(query, "at")?, read).await?;
                coracle_ui::redact(&resource, &mut object);
                json_response(&json!({ "object": object }))
            }
            "why" => {
                let (object, clock) = (ObjectName::read(query)?, self.0.clock.clone());
                let at = revision(query, "at")?;
                let explain =
                    move |objects: &StoredObjects| objects.explain(&object, moment(at, objects, &clock));
                json_response(&self.read_at(at, explain).await?)
            }
            "log" => {
                let (log, now) = (LogRequest::read(query)?, self.0.clock.now());
                json_response(&self.read_at(None, move |objects| objects.log(&log, now)).await?)
            }
            "events" => {
                let uid = query.first("uid").map(str::to_owned);
                let read = move |objects: &StoredObjects| Ok(events::read(objects, uid.as_deref()));
                json_response(&self.read_at(revision(query, "at")?, read).await?)
            }
            _ => Err(Error::PageNotFound),
        }
    }

    /// Returns the picture of all objects at a revision; None for now.
    ///
    /// # Errors
    /// 410 if history does not reach back so far.
    async fn picture(&self, at: Option<Revision>) -> Result<Picture> {
        let clock = self.0.clock.clone();
        self.read_outline(at, move |objects| {
            let picture = Picture::of(objects, moment(at, objects, &clock));
            let [resource_version, oldest] = [objects.revision(), objects.oldest()].map(|at| at.to_string());
            Ok(Picture { resource_version, oldest, ..picture })
        })
        .await
    }

    /// Reads what states depend on of the objects at a revision; None for those of now.
    async fn read_outline<T: Send + 'static>(
        &self,
        at: Option<Revision>,
        read: impl FnOnce(&StoredObjects) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (store, traffic) = (self.0.store.clone(), self.0.traffic.clone());
        self.in_turn(move || read(&StoredObjects::at(store, traffic, at)?.outline())).await
    }

    /// Reads the objects at a revision; None for those of now.
    async fn read_at<T: Send + 'static>(
        &self,
        at: Option<Revision>,
        read: impl FnOnce(&StoredObjects) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (store, traffic) = (self.0.store.clone(), self.0.traffic.clone());
        self.in_turn(move || read(&StoredObjects::at(store, traffic, at)?)).await
    }
}

/// Authenticates the requests of the page with a cookie as those of an administrator: for the page
/// alone.
pub struct PageAuthenticator {
    sessions: Arc<Sessions>,
    user: Arc<UserInfo>,
}

impl PageAuthenticator {
    /// Creates the authenticator for the cookies of some sessions.
    pub fn new(sessions: Arc<Sessions>) -> PageAuthenticator {
        PageAuthenticator { sessions, user: Arc::new(UserInfo::new(UI_USER, &[MASTERS]).authenticated()) }
    }
}

impl RequestAuthenticator for PageAuthenticator {
    fn authenticate(&self, request: &Parts) -> Option<Arc<UserInfo>> {
        self.sessions.admits(request).then(|| self.user.clone())
    }
}

/// Returns the time of a revision: that of its newest write, if the written object has it; the
/// current time for None.
fn moment(at: Option<Revision>, objects: &StoredObjects, clock: &Clock) -> Timestamp {
    let newest = at.and_then(|_| objects.newest());
    let time = newest.as_ref().and_then(newest_time).and_then(|time| time.parse().ok());
    time.unwrap_or_else(|| clock.now())
}

/// Returns the time of the last write of an object, if the object has it.
fn newest_time(object: &Value) -> Option<&str> {
    let metadata = &object["metadata"];
    let fields = metadata["managedFields"].as_array().into_iter().flatten();
    let written = fields.filter_map(|entry| entry["time"].as_str());
    written.chain(metadata["creationTimestamp"].as_str()).max()
}

/// Parses an option as a revision.
///
/// # Errors
/// 422 if it is invalid.
fn revision(query: &Query, name: &str) -> Result<Option<Revision>> {
    let text = query.first(name).filter(|text| !text.is_empty());
    let number = text.map(|text| text.parse().map(Revision)).transpose();
    number.map_err(|_| read::invalid(name, "it is no revision"))
}

/// Exchanges a link for a cookie.
fn log_in(sessions: &Sessions, query: &Query) -> Result<Response<Body>> {
    let cookie = sessions.log_in(query.first("token").unwrap_or_default());
    match cookie.map_err(|error| Error::Internal(error.to_string()))? {
        Some(cookie) => {
            let mut response = redirect("./")?;
            let cookie =
                HeaderValue::from_str(&cookie).map_err(|error| Error::Internal(error.to_string()))?;
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            Ok(response)
        }
        None => {
            let mut response = respond_with(&LOGIN_REFUSED, None);
            *response.status_mut() = StatusCode::FORBIDDEN;
            Ok(response)
        }
    }
}

fn redirect(to: &'static str) -> Result<Response<Body>> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(to));
    Ok(response)
}

/// Responds with a file, or with 304 if the client has it.
fn respond_with(asset: &Asset, known: Option<&HeaderValue>) -> Response<Body> {
    let etag = etag(asset);
    let is_known = known.is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let body = if is_known { Bytes::new() } else { Bytes::from_static(asset.content.as_bytes()) };
    let mut response = Response::new(Body::from(body));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}
