//! The threads of forks.
//!
//! A fork is started and works on one of the threads of its family, so that a client of the parent waits for none of it, and so that
//! forks outlive the runtime of the test that made their template. There are as many threads as processors, however many forks there are.
//! One fork leaves the other processors to the parent, whose clients would otherwise wait until the kernel interrupts the fork; many forks
//! use all of them.

use std::io;
use std::panic::resume_unwind;
use std::thread;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;

/// The threads of a family's forks, which start as forks need them and end when this is dropped.
#[derive(Default)]
pub struct Workers(Mutex<Threads>);

#[derive(Default)]
struct Threads {
    /// A runtime for each thread.
    runtimes: Vec<Runtime>,
    /// The number of works so far, which take the threads in turn.
    works: usize,
}

impl Workers {
    /// Runs work on them until it is done, or until the returned future is dropped.
    ///
    /// # Errors
    /// No thread can be started.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let mut task = JoinSet::new();
        task.spawn_on(work, &self.handle()?);
        match task.join_next().await {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(cancelled) => Err(io::Error::other(cancelled)),
            },
            None => Err(io::Error::other("the work was not started")),
        }
    }

    /// Returns the next thread.
    fn handle(&self) -> io::Result<Handle> {
        let mut threads = self.0.lock();
        let index = threads.works % thread::available_parallelism().map_or(1, usize::from);
        let handle = match threads.runtimes.get(index) {
            Some(runtime) => runtime.handle().clone(),
            None => {
                let mut builder = Builder::new_multi_thread();
                let runtime = builder.worker_threads(1).thread_name("coracle-forks").enable_all().build()?;
                let handle = runtime.handle().clone();
                threads.runtimes.push(runtime);
                handle
            }
        };
        threads.works += 1;
        Ok(handle)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // The last owner may run on one of these threads, and a thread cannot join itself.
        let Threads { runtimes, .. } = std::mem::take(self.0.get_mut());
        runtimes.into_iter().for_each(Runtime::shutdown_background);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_continues_while_another_runtime_is_busy() {
        let workers = Workers::default();
        let (ask, asked) = oneshot::channel::<()>();
        let (answer, answered) = std::sync::mpsc::channel();
        let work = workers.run(async move {
            asked.await.unwrap();
            answer.send(std::thread::current().name().map(str::to_owned)).unwrap();
        });
        let busy = async {
            ask.send(()).unwrap();
            // This blocks the only thread of the test's runtime.
            answered.recv().unwrap()
        };
        let (done, name) = tokio::join!(work, busy);
        done.unwrap();
        assert_eq!(name.as_deref(), Some("coracle-forks"));
    }

    #[tokio::test]
    async fn works_take_the_threads_in_turn() {
        let workers = Workers::default();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let mut ids = Vec::new();
        for _ in 0..2 * processors {
            ids.push(workers.run(async { thread::current().id() }).await.unwrap());
        }
        let (first, second) = ids.split_at(processors);
        assert_eq!(first, second);
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), processors);
    }

    #[tokio::test]
    async fn dropping_the_future_cancels_the_work() {
        let workers = Workers::default();
        let (alive, ended) = oneshot::channel::<()>();
        let mut work = Box::pin(workers.run(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        }));
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        ended.await.unwrap_err();
    }

    #[tokio::test]
    async fn the_last_one_who_needs_them_may_be_one_of_them() {
        let workers = Arc::new(Workers::default());
        let (last, (done, is_done)) = (workers.clone(), oneshot::channel());
        let waiting = async move {
            while Arc::strong_count(&last) > 1 {
                tokio::task::yield_now().await;
            }
            drop(last);
            done.send(()).unwrap();
        };
        workers.run(async { drop(tokio::spawn(waiting)) }).await.unwrap();
        drop(workers);
        is_done.await.unwrap();
    }
}
