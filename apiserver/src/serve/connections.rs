//! Connections: limits their number, and selects the ones to close when there are too many.
//!
//! A connection is *pending* until a request on it was authenticated, by a client certificate in
//! the handshake or by a token. Few may be pending: the oldest is closed for a new one, so that a
//! flood of silent connections does not affect clients with credentials. Connections of users
//! outside of `system:masters` leave a reserve for those inside.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::access::UserInfo;
use crate::access::authenticate::MASTERS;

/// The largest number of connections, independent of the number of open files.
const MAX_CONNECTIONS: usize = 12_000;
/// The number of files reserved for everything else: the store, standard streams, directories.
const OTHER_FILES: usize = 256;

/// The limits of a server's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// All of them.
    pub total: usize,
    /// The number of connections without an authenticated request.
    pub pending: usize,
    /// The number of connections of one user outside of system:masters.
    pub per_user: usize,
    /// The number of connections reserved for members of system:masters.
    pub reserve: usize,
}

impl ConnectionLimits {
    /// Returns the limits for a process that may have `files` open files.
    pub fn for_open_files(files: usize) -> ConnectionLimits {
        let total = files.saturating_sub(OTHER_FILES).clamp(16, MAX_CONNECTIONS);
        ConnectionLimits { total, pending: (total / 4).min(2000), per_user: total / 2, reserve: total / 8 }
    }
}

/// The connections of a server.
pub struct Connections {
    limits: ConnectionLimits,
    /// The reference for the times of activity.
    base: Instant,
    table: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    next_id: u64,
    total: usize,
    /// The pending connections, by age.
    pending: BTreeMap<u64, Arc<Notify>>,
    /// The connections of users outside of system:masters, by user.
    users: HashMap<Arc<str>, usize>,
    of_users: usize,
}

/// One connection, counted until it is dropped.
pub struct Connection {
    connections: Arc<Connections>,
    id: u64,
    close: Arc<Notify>,
    /// Whether a request was received.
    spoken: AtomicBool,
    authenticated: AtomicBool,
    /// Whether the user has too many connections. Then this one is closed after the response to the
    /// request that was authenticated.
    excess: AtomicBool,
    /// Its user, if its connections are counted.
    user: Mutex<Option<Arc<str>>>,
    /// Whether the server waits for the client to close the connection first.
    waits_for_client_close: AtomicBool,
    /// The number of requests whose response is not complete.
    active: AtomicUsize,
    /// Milliseconds from the base to when the last response was over.
    idle_since: AtomicU64,
}

/// Counts a request on a connection as active until it is dropped.
pub struct Active(Arc<Connection>);

impl Connections {
    /// Creates the connections of a server with these limits.
    pub fn new(limits: ConnectionLimits) -> Arc<Connections> {
        Arc::new(Connections { limits, base: Instant::now(), table: Mutex::default() })
    }

    /// Admits a new connection; None if there are too many and none of them can be closed.
    pub fn admit(self: &Arc<Connections>) -> Option<Arc<Connection>> {
        let close = Arc::new(Notify::new());
        let mut table = self.lock();
        if table.pending.len() >= self.limits.pending || table.total >= self.limits.total {
            let (_, oldest) = table.pending.pop_first()?;
            oldest.notify_one();
        }
        table.total += 1;
        table.next_id += 1;
        let id = table.next_id;
        table.pending.insert(id, close.clone());
        drop(table);
        Some(Arc::new(Connection {
            connections: self.clone(),
            id,
            close,
            spoken: AtomicBool::new(false),
            authenticated: AtomicBool::new(false),
            excess: AtomicBool::new(false),
            waits_for_client_close: AtomicBool::new(true),
            user: Mutex::default(),
            active: AtomicUsize::new(0),
            idle_since: AtomicU64::new(self.now()),
        }))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    // No code panics while this lock is held.
    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock()
    }
}

impl Connection {
    /// Returns the notification that asks the connection to close.
    pub fn close(&self) -> Arc<Notify> {
        self.close.clone()
    }

    /// Waits until the connection has had no request for `first` since its start, or for `idle`
    /// since its last request. The checks are `first` apart.
    pub async fn wait_until_idle(&self, first: Duration, idle: Duration) {
        loop {
            sleep(first).await;
            if self.is_silent() || self.idle().is_some_and(|time| time >= idle) {
                return;
            }
        }
    }

    /// Records that a request was authenticated. The connection counts for the user of its first
    /// such request.
    ///
    /// Returns `false` if the user has too many connections. Then this one is closed after the
    /// response to this request.
    pub fn authenticated(&self, user: &UserInfo, anonymous: bool) -> bool {
        if anonymous || self.authenticated.swap(true, Ordering::Relaxed) {
            return true;
        }
        let limits = self.connections.limits;
        let mut table = self.connections.lock();
        table.pending.remove(&self.id);
        if user.is_in(MASTERS) {
            return true;
        }
        let name: Arc<str> = user.name.as_str().into();
        let of_user = table.users.get(&name).copied().unwrap_or(0);
        let most = limits.total.saturating_sub(limits.reserve + limits.pending);
        let fits = of_user < limits.per_user && table.of_users < most;
        table.users.insert(name.clone(), of_user + 1);
        table.of_users += 1;
        *self.user.lock() = Some(name);
        self.excess.store(!fits, Ordering::Relaxed);
        fits
    }

    /// Begins a request.
    pub fn begin(self: &Arc<Connection>) -> Active {
        self.spoken.store(true, Ordering::Relaxed);
        self.waits_for_client_close.store(true, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(self.clone())
    }

    /// Ends the connection. Without a request in progress it does not wait for the client to close
    /// it: a client of HTTP/1.1 that waits for no response has sent nothing either, so that nothing
    /// it reads is lost.
    pub fn end_http1(&self) {
        self.waits_for_client_close.store(self.idle().is_none(), Ordering::Relaxed);
    }

    /// Returns `true` if the server waits for the client to close the connection first.
    pub fn waits_for_client_close(&self) -> bool {
        self.waits_for_client_close.load(Ordering::Relaxed)
    }

    /// Returns the time since the last request; None while a request is in progress.
    pub fn idle(&self) -> Option<Duration> {
        let since = self.idle_since.load(Ordering::Relaxed);
        let idle = Duration::from_millis(self.connections.now().saturating_sub(since));
        (self.active.load(Ordering::Relaxed) == 0).then_some(idle)
    }

    /// Returns whether there has been no request yet.
    pub fn is_silent(&self) -> bool {
        !self.spoken.load(Ordering::Relaxed)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.connections.now(), Ordering::Relaxed);
        self.0.active.fetch_sub(1, Ordering::Relaxed);
        if self.0.excess.load(Ordering::Relaxed) {
            self.0.close.notify_one();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let user = self.user.get_mut().take();
        let mut table = self.connections.lock();
        table.total -= 1;
        table.pending.remove(&self.id);
        if let Some(user) = user {
            table.of_users -= 1;
            if let Some(count) = table.users.get_mut(&user) {
                *count -= 1;
                if *count == 0 {
                    table.users.remove(&user);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits { total: 20, pending: 4, per_user: 6, reserve: 6 };

    fn user(name: &str) -> UserInfo {
        UserInfo::new(name, &[]).authenticated()
    }

    fn root() -> UserInfo {
        UserInfo::new("root", &[MASTERS])
    }

    #[test]
    fn silent_connections_give_way_to_new_ones() {
        let connections = Connections::new(LIMITS);
        let silent: Vec<_> = (0..4).filter_map(|_| connections.admit()).collect();
        assert!(silent.iter().all(|connection| connection.close.notified().now_or_never().is_none()));
        let new = connections.admit().expect("room is made");
        let closed: Vec<bool> = silent.iter().map(|c| c.close.notified().now_or_never().is_some()).collect();
        assert_eq!(closed, [true, false, false, false], "the oldest goes");
        assert!(new.authenticated(&user("a"), false));
        let _another = connections.admit().expect("room");
        assert!(silent[1].close.notified().now_or_never().is_none(), "who was authenticated counts no more");
    }

    #[test]
    fn a_reserve_is_left_for_masters() {
        let connections = Connections::new(LIMITS);
        let mut open = Vec::new();
        let mut connect = |who: &UserInfo| {
            let connection = connections.admit()?;
            let fits = connection.authenticated(who, false);
            if fits {
                open.push(connection);
            }
            Some(fits)
        };
        let count = |connect: &mut dyn FnMut(&UserInfo) -> Option<bool>, who: &UserInfo| {
            (0..30).take_while(|_| connect(who) == Some(true)).count()
        };
        assert_eq!(count(&mut connect, &user("a")), 6, "as many as one user may have");
        assert_eq!(count(&mut connect, &user("b")), 4, "what is left but for the reserve");
        assert_eq!(count(&mut connect, &root()), 10, "all the rest");
        open.clear();
        assert_eq!(connections.lock().total, 0);
        assert!(connections.lock().users.is_empty() && connections.lock().pending.is_empty());
    }

    #[test]
    fn limits_follow_from_how_many_files_may_be_open() {
        for (files, want) in [
            (1_048_576, ConnectionLimits { total: 12_000, pending: 2000, per_user: 6000, reserve: 1500 }),
            (1024, ConnectionLimits { total: 768, pending: 192, per_user: 384, reserve: 96 }),
            (10, ConnectionLimits { total: 16, pending: 4, per_user: 8, reserve: 2 }),
        ] {
            assert_eq!(ConnectionLimits::for_open_files(files), want, "{files}");
        }
    }

    #[test]
    fn an_idle_connection_does_not_wait_for_its_client_to_close() {
        let connections = Connections::new(LIMITS);
        let connection = connections.admit().expect("room");
        assert!(connection.waits_for_client_close());
        let active = connection.begin();
        connection.end_http1();
        assert!(connection.waits_for_client_close(), "a request is under way");
        drop(active);
        connection.end_http1();
        assert!(!connection.waits_for_client_close());
        let _late = connection.begin();
        assert!(connection.waits_for_client_close(), "a request came after all");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_requests_becomes_idle() {
        let connections =
            Connections::new(ConnectionLimits { total: 2, pending: 2, per_user: 1, reserve: 0 });
        let connection = connections.admit().expect("the first");
        let (first, idle) = (Duration::from_secs(32), Duration::from_secs(90));
        let began = tokio::time::Instant::now();
        connection.wait_until_idle(first, idle).await;
        assert_eq!(began.elapsed(), first, "no first request");
        let active = connection.begin();
        let waits = async |idle| {
            tokio::time::timeout(first * 4, connection.wait_until_idle(first, idle)).await.is_err()
        };
        assert!(waits(Duration::ZERO).await, "a request is under way");
        drop(active);
        assert!(waits(idle).await, "not for so long");
        assert!(!waits(Duration::ZERO).await, "for long enough");
    }
}
