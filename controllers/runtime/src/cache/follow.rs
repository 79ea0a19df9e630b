//! A list that is kept up to date by a watch.
//!
//! kube's watcher does the same for anybody. Here there are a hundred for each control plane, and
//! control planes by the hundred: this one holds no buffer while nothing happens, and can begin at
//! a revision if its objects are known.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::time::Duration;

use coracle_clock::{Clock, Work};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::WatchParams;
use kube::client::Body;
use kube::core::{ApiResource, DynamicObject, Request, Status};
use kube::{Client, Error, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::indexer::revision;
use super::reflector::ListScope;
use super::watched::Followed;
use crate::timers::WATCH_RETRY;

/// The first pause after an error, and the longest, in a row that doubles. Source: client-go's
/// reflector.
const PAUSES: [Duration; 2] = [Duration::from_millis(800), Duration::from_secs(30)];
/// A watch that ends sooner is a short one, as client-go has it. After so many in a row there is a
/// pause, whatever came of them: the server may be somebody else's.
const SHORT: Duration = Duration::from_secs(1);
const MAX_SHORT: usize = 10;
/// The code of what history does not have any more.
const EXPIRED: u16 = 410;
/// The longest event that is read, in bytes: far more than a server stores of one object.
const MAX_EVENT_LENGTH: usize = 64 << 20;
/// The bytes that are read of an error.
const MAX_ERROR_LENGTH: usize = 64 << 10;
/// The annotation of the bookmark after which all is known that was there at first (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An event of a list that is kept up to date.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<K> {
    /// All objects are listed from here on.
    Init,
    /// One of them.
    InitApply(K),
    /// These were all, up to this revision.
    InitDone(u64),
    /// An object is created or changed.
    Apply(K),
    /// An object is deleted.
    Delete(K),
    /// All events up to this revision have come.
    Bookmark(u64),
}

impl<T, E> Event<Result<T, E>> {
    /// Returns the event of an object that could be read, or the error of one that could not.
    pub(super) fn transpose(self) -> Result<Event<T>, E> {
        Ok(match self {
            Event::Init => Event::Init,
            Event::InitApply(object) => Event::InitApply(object?),
            Event::InitDone(revision) => Event::InitDone(revision),
            Event::Apply(object) => Event::Apply(object?),
            Event::Delete(object) => Event::Delete(object?),
            Event::Bookmark(revision) => Event::Bookmark(revision),
        })
    }
}

/// Follows the objects of a resource, until the handler breaks or the future is dropped. Errors are
/// passed on, and the watch begins again after a pause.
///
/// - `from`: a revision whose objects the handler knows; None to have them listed
/// - `read`: reads an object of an event
pub async fn follow<K: Followed>(
    client: &Client,
    (resource, scope): (&ApiResource, ListScope),
    clock: &Clock,
    mut from: Option<u64>,
    (read, mut handle): (
        impl Fn(&RawValue) -> serde_json::Result<K> + Send + Sync,
        impl FnMut(Result<Event<K>, Error>) -> ControlFlow<()> + Send,
    ),
) {
    let request = Request::new(DynamicObject::url_path(resource, scope.namespace));
    let (mut pause, mut short) = (PAUSES[0], 0);
    loop {
        // Until the watch is open, a change is followed by nobody.
        let opening = clock.activity().begin();
        let watch = WatchRequest { request: &request, is_metadata: K::IS_METADATA, scope };
        let mut reader =
            Reader { is_listing: from.is_none(), read: &read, handle: &mut handle, event: PhantomData };
        if reader.is_listing && (reader.handle)(Ok(Event::Init)).is_break() {
            return;
        }
        let before = from;
        #[expect(clippy::disallowed_methods, reason = "a connection lasts by the time of the machine")]
        let began = Instant::now();
        let ended = watch.run(client, &mut from, &mut reader, opening).await;
        short = if began.elapsed() < SHORT { short + 1 } else { 0 };
        if short == 0 || from != before {
            pause = PAUSES[0];
        }
        match ended {
            Ok(Ended::Handled) => return,
            // The server ends every watch after a while, and those of a definition that changes.
            Ok(Ended::Closed) if short <= MAX_SHORT => continue,
            Ok(Ended::Closed) => {}
            Err(error) => {
                if matches!(&error, Error::Api(status) if status.code == EXPIRED) {
                    // History does not reach back so far.
                    from = None;
                }
                if handle(Err(error)).is_break() {
                    return;
                }
            }
        }
        drop(clock.sleep(WATCH_RETRY.after(pause)).of(resource.plural.clone()).await);
        pause = (pause * 2).min(PAUSES[1]);
    }
}

/// The end of a watch without an error.
enum Ended {
    /// By the server.
    Closed,
    /// By the handler.
    Handled,
}

/// A line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    r#type: Type,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Type {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct Marked {
    metadata: ObjectMeta,
}

/// Reads the lines of one watch.
struct Reader<'h, K, R, H> {
    /// Whether the initial list of objects is requested and has not ended.
    is_listing: bool,
    read: &'h R,
    handle: &'h mut H,
    event: PhantomData<fn() -> K>,
}

/// The same code reads the lines of all types.
trait ReadLine {
    /// Reads a line, and notes how far the watch has come. Returns whether the handler goes on.
    fn read(&mut self, line: &[u8], from: &mut Option<u64>) -> Result<ControlFlow<()>, Error>;
}

impl<K, R, H> ReadLine for Reader<'_, K, R, H>
where
    K: Followed,
    R: Fn(&RawValue) -> serde_json::Result<K>,
    H: FnMut(Result<Event<K>, Error>) -> ControlFlow<()>,
{
    fn read(&mut self, line: &[u8], from: &mut Option<u64>) -> Result<ControlFlow<()>, Error> {
        let Line { r#type, object } = serde_json::from_slice(line).map_err(Error::SerdeError)?;
        let event = match r#type {
            Type::Error => {
                let status: Status = parse(object)?;
                return Err(Error::Api(status.boxed()));
            }
            Type::Bookmark => {
                let Marked { metadata } = parse(object)?;
                let at = revision(&metadata);
                let ends = metadata.annotations.is_some_and(|known| known.contains_key(INITIAL_EVENTS_END));
                if self.is_listing && !ends {
                    return Ok(ControlFlow::Continue(()));
                }
                *from = known(at);
                if std::mem::take(&mut self.is_listing) { Event::InitDone(at) } else { Event::Bookmark(at) }
            }
            Type::Added | Type::Modified | Type::Deleted => {
                let object = (self.read)(object).map_err(Error::SerdeError)?;
                let at = object.revision();
                match (self.is_listing, r#type) {
                    (true, Type::Deleted) => {
                        let status = Status::failure("an object is deleted while all are listed", "Expired");
                        return Err(Error::Api(status.with_code(EXPIRED).boxed()));
                    }
                    (true, _) => Event::InitApply(object),
                    (false, r#type) => {
                        *from = known(at);
                        if r#type == Type::Deleted { Event::Delete(object) } else { Event::Apply(object) }
                    }
                }
            }
        };
        Ok((self.handle)(Ok(event)))
    }
}

/// Returns the revision from which a watch continues; None if an object has none: then everything
/// is listed again.
fn known(revision: u64) -> Option<u64> {
    (revision > 0).then_some(revision)
}

fn parse<T: DeserializeOwned>(object: &RawValue) -> Result<T, Error> {
    serde_json::from_str(object.get()).map_err(Error::SerdeError)
}

/// A watch request, independent of the type of the objects.
struct WatchRequest<'a> {
    request: &'a Request,
    is_metadata: bool,
    scope: ListScope,
}

impl WatchRequest<'_> {
    /// Watches once.
    ///
    /// - `from`: the revision to begin at; None for a list of all objects first
    /// - `opening`: ends when the watch is open
    async fn run(
        &self,
        client: &Client,
        from: &mut Option<u64>,
        reader: &mut (dyn ReadLine + Send),
        opening: Work,
    ) -> Result<Ended, Error> {
        let mut body = self.start(client, *from).await?;
        drop(opening);
        // The beginning of a line whose end has not come.
        let mut begun = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let mut rest: &[u8] = &data;
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let flow = match begun.is_empty() {
                    true => reader.read(&rest[..end], from)?,
                    false => {
                        begun.extend_from_slice(&rest[..end]);
                        reader.read(&std::mem::take(&mut begun), from)?
                    }
                };
                if flow.is_break() {
                    return Ok(Ended::Handled);
                }
                rest = &rest[end + 1..];
            }
            if begun.len() + rest.len() > MAX_EVENT_LENGTH {
                return Err(Error::ReadEvents(std::io::Error::other("an event of a watch is too long")));
            }
            begun.extend_from_slice(rest);
        }
        Ok(Ended::Closed)
    }

    async fn start(&self, client: &Client, from: Option<u64>) -> Result<Body, Error> {
        let mut params = WatchParams { bookmarks: true, ..WatchParams::default() };
        params.send_initial_events = from.is_none();
        if let Some(selector) = self.scope.field_selector {
            params = params.fields(selector);
        }
        // Any state will do to begin with, and the newest one is what the server has.
        let version = from.map_or_else(|| "0".to_owned(), |revision| revision.to_string());
        let request = match self.is_metadata {
            true => self.request.watch_metadata(&params, &version),
            false => self.request.watch(&params, &version),
        };
        let request = request.map_err(Error::BuildRequest)?;
        let response = client.send(request.map(Body::from)).await?;
        let status = response.status();
        if !status.is_client_error() && !status.is_server_error() {
            return Ok(response.into_body());
        }
        let body = Limited::new(response.into_body(), MAX_ERROR_LENGTH).collect().await;
        let text = body.map(|body| body.to_bytes()).unwrap_or_default();
        let known = serde_json::from_slice::<Status>(&text).unwrap_or_else(|_| {
            Status::failure(&String::from_utf8_lossy(&text), "Unreadable").with_code(status.as_u16())
        });
        Err(Error::Api(known.boxed()))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use bytes::Bytes;
    use futures::StreamExt;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use parking_lot::Mutex;
    use tokio::sync::Notify;

    use super::super::watched::Identified;
    use super::*;

    /// The answers of a server to one request after the other: a status, and the chunks of a body.
    type Answers = Vec<(u16, Vec<String>)>;

    /// Follows until the answers are used up. Returns the requests' queries, and the events.
    async fn followed(from: Option<u64>, answers: Answers) -> (Vec<String>, Vec<String>) {
        let queries = Arc::<Mutex<Vec<String>>>::default();
        let left = Arc::new(Mutex::new(answers.into_iter()));
        let (seen, done) = (queries.clone(), Arc::new(Notify::new()));
        let is_done = done.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            seen.lock().push(request.uri().query().unwrap_or_default().to_owned());
            let answer = left.lock().next();
            let done = done.clone();
            async move {
                let Some((status, chunks)) = answer else {
                    done.notify_one();
                    return std::future::pending().await;
                };
                let frames =
                    chunks.into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(Bytes::from(chunk))));
                let body = StreamBody::new(futures::stream::iter(frames).boxed());
                http::Response::builder().status(status).body(body)
            }
        });
        let client = Client::new(service, "default");
        let events = Arc::<Mutex<Vec<String>>>::default();
        let log = events.clone();
        let handle = move |event: Result<Event<Identified>, Error>| {
            let name = |object: &Identified| object.meta().name.clone().unwrap_or_default();
            log.lock().push(match event {
                Ok(Event::Init) => "init".to_owned(),
                Ok(Event::InitApply(object)) => format!("listed {}", name(&object)),
                Ok(Event::InitDone(at)) => format!("all at {at}"),
                Ok(Event::Apply(object)) => format!("applied {}", name(&object)),
                Ok(Event::Delete(object)) => format!("deleted {}", name(&object)),
                Ok(Event::Bookmark(at)) => format!("at {at}"),
                Err(Error::Api(status)) => format!("error {}", status.code),
                Err(error) => format!("error {error}"),
            });
            ControlFlow::Continue(())
        };
        let clock = Clock::system();
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
        let reading = (Identified::read, handle);
        let following = follow(&client, (&resource, ListScope::default()), &clock, from, reading);
        tokio::select! { () = following => {}, () = is_done.notified() => {} }
        let queries = queries.lock().clone();
        let events = events.lock().clone();
        (queries, events)
    }

    fn line(r#type: &str, name: &str, at: u64) -> String {
        format!(r#"{{"type":"{type}","object":{{"metadata":{{"name":"{name}","resourceVersion":"{at}"}}}}}}"#)
            + "\n"
    }

    fn end_of_list(at: u64) -> String {
        let annotations = format!(r#"{{"{INITIAL_EVENTS_END}":"true"}}"#);
        format!(
            r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{at}","annotations":{annotations}}}}}}}"#
        ) + "\n"
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_kept_up_to_date() {
        let text = [
            line("ADDED", "a", 3),
            line("BOOKMARK", "", 4),
            line("ADDED", "b", 2),
            end_of_list(5),
            line("MODIFIED", "a", 6),
            line("DELETED", "b", 7),
            line("BOOKMARK", "", 9),
        ]
        .concat();
        let want = ["init", "listed a", "listed b", "all at 5", "applied a", "deleted b", "at 9"];
        for size in [1, 7, 100, 10_000] {
            let chunks: Vec<String> = text
                .as_bytes()
                .chunks(size)
                .map(|chunk| String::from_utf8(chunk.to_vec()).unwrap())
                .collect();
            let (queries, events) = followed(None, vec![(200, chunks)]).await;
            assert_eq!(events, want, "{size}");
            assert!(
                queries[0].contains("sendInitialEvents=true") && queries[0].contains("resourceVersion=0")
            );
            assert!(
                !queries[1].contains("sendInitialEvents") && queries[1].contains("resourceVersion=9"),
                "it goes on"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_begin_a_watch_anew() {
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"message":"","reason":"Expired"}}"#;
        let refused =
            r#"{"kind":"Status","status":"Failure","code":500,"message":"","reason":"InternalError"}"#;
        let (queries, events) = followed(
            Some(8),
            vec![
                (200, vec![line("ADDED", "a", 9)]),
                (500, vec![refused.to_owned()]),
                (502, vec!["bad gateway".to_owned()]),
                (200, vec!["{\n".to_owned()]),
                (200, vec![format!("{gone}\n")]),
                (200, vec![line("ADDED", "b", 3)]),
            ],
        )
        .await;
        let want = ["applied a", "error 500", "error 502"];
        assert_eq!(events[..3], want);
        assert!(events[3].starts_with("error ") && events[4] == "error 410", "{events:?}");
        assert_eq!(events[5..], ["init", "listed b", "init"], "a list without an end begins again");
        let versions: Vec<bool> = queries.iter().map(|query| query.contains("sendInitialEvents")).collect();
        assert_eq!(versions, [false, false, false, false, false, true, true]);
    }

    /// Verifies that a watch that ends continues at once at its revision, unless the server ends
    /// one watch after another, with events or without.
    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the time of the test is paused")]
    async fn a_watch_that_ends_continues() {
        let quiet = |count: usize| vec![(200, Vec::new()); count];
        let busy = |count: usize| {
            (0..count).map(|index| (200, vec![line("MODIFIED", "a", 9 + index as u64)])).collect::<Answers>()
        };
        let began = Instant::now();
        let (queries, events) = followed(Some(8), quiet(MAX_SHORT)).await;
        assert_eq!(events, [""; 0]);
        assert!(queries.iter().all(|query| query.contains("resourceVersion=8")), "{queries:?}");
        let (_, events) = followed(Some(8), busy(MAX_SHORT)).await;
        assert_eq!(events, ["applied a"; MAX_SHORT]);
        assert_eq!(began.elapsed(), Duration::ZERO);
        for answers in [quiet(MAX_SHORT + 1), busy(MAX_SHORT + 1)] {
            let began = Instant::now();
            followed(Some(8), answers).await;
            assert!(began.elapsed() >= PAUSES[0]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_bounded() {
        let chunk = "x".repeat(1 << 20);
        let (_, events) = followed(Some(1), vec![(200, vec![chunk; (MAX_EVENT_LENGTH >> 20) + 1])]).await;
        assert!(events[0].contains("too long"), "{events:?}");
    }
}
