//! Many writers at once.

use futures::future::join_all;

use super::*;
use crate::audit::AuditContext;
use crate::resource_info::Part;

/// Runs a future for each number in a task of its own.
async fn at_once<F>(count: usize, one: impl Fn(usize) -> F) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|i| tokio::spawn(one(i))).collect();
    join_all(tasks).await.into_iter().map(|done| done.expect("no panic")).collect()
}

/// Writes to one object that are overtaken take turns, so that each is made a few times and not
/// once for every other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writes_to_one_object_are_no_work_of_their_square() {
    const MAX_AT_ONCE: usize = 128;
    let server = Arc::new(Server::start().await);
    let config_map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"n": "0"}});
    server.create("v1", "configmaps", &config_map).await.expect("created");
    let edits = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let codes = at_once(MAX_AT_ONCE, |_| {
        let (server, edits) = (server.clone(), edits.clone());
        async move {
            let target = server.target("v1", "configmaps", "c");
            let (warnings, options) = (Warnings::default(), Server::options());
            let audit = AuditContext::default();
            let caller = caller(&server.user, &warnings, &audit);
            let writing = write::Writing {
                target: &target,
                part: Part::Main,
                caller,
                options: OperationOptions::Write(&options),
                is_collection: false,
                projection: None,
                field_manager: None,
            };
            let changed = server.registry.modify(writing, None, |current, _| {
                edits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                // Long enough that others start meanwhile.
                std::thread::sleep(Duration::from_millis(1));
                let count: usize =
                    current["data"]["n"].as_str().and_then(|n| n.parse().ok()).expect("a number");
                let mut new = current.clone();
                new["data"]["n"] = (count + 1).to_string().into();
                Ok(new)
            });
            changed.await.map(drop).map_err(|error| error.code())
        }
    })
    .await;
    assert!(codes.iter().all(Result::is_ok), "{codes:?}");
    let stored = parse(&server.stored("v1", "configmaps", "c").expect("there")).expect("readable");
    assert_eq!(stored["data"]["n"], MAX_AT_ONCE.to_string(), "none was lost");
    let edits = edits.load(std::sync::atomic::Ordering::Relaxed);
    assert!(edits <= 4 * MAX_AT_ONCE, "{edits} attempts for {MAX_AT_ONCE} writes");
}
