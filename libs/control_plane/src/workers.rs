//! The threads of forks.
//!
//! A fork is started and works on one of the threads of its family, so that a client of the parent
//! waits for none of it, and so that forks outlive the runtime of the test that made their
//! template. There are at most as many threads as processors, however many forks there are. One
//! fork leaves the other processors to the parent: its clients would otherwise wait until the
//! kernel interrupts the fork; many forks use all of them.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;

/// The threads of a family's forks, which start as forks need them and end when this is dropped.
#[derive(Default)]
pub struct Workers(Mutex<Vec<Thread>>);

struct Thread {
    runtime: Runtime,
    /// A reference for each fork on the thread, and this one.
    forks: Arc<()>,
}

/// The thread of a fork, as long as the fork exists.
pub struct Worker {
    thread: Handle,
    _fork: Arc<()>,
}

impl Workers {
    /// Takes the thread with the fewest forks, or starts another one if all have forks and there
    /// are fewer threads than processors.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn take(&self) -> io::Result<Worker> {
        let mut threads = self.0.lock();
        let most = thread::available_parallelism().map_or(1, usize::from);
        let idlest = threads.iter().min_by_key(|thread| Arc::strong_count(&thread.forks));
        let thread = match idlest {
            Some(thread) if Arc::strong_count(&thread.forks) == 1 || threads.len() >= most => thread,
            _ => {
                let mut builder = Builder::new_multi_thread();
                let runtime = builder.worker_threads(1).thread_name("coracle-forks").enable_all().build()?;
                let thread = Thread { runtime, forks: Arc::default() };
                let worker = thread.worker();
                threads.push(thread);
                return Ok(worker);
            }
        };
        Ok(thread.worker())
    }
}

impl Thread {
    fn worker(&self) -> Worker {
        Worker { thread: self.runtime.handle().clone(), _fork: self.forks.clone() }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // The last owner may run on one of these threads, and a thread cannot join itself.
        self.0.get_mut().drain(..).for_each(|thread| thread.runtime.shutdown_background());
    }
}

impl Worker {
    /// Runs work on the thread until it is done, or until the returned future is dropped.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let mut task = JoinSet::new();
        task.spawn_on(work, &self.thread);
        match task.join_next().await {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(cancelled) => Err(io::Error::other(cancelled)),
            },
            None => Err(io::Error::other("the work was not started")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_continues_while_another_runtime_is_busy() {
        let workers = Workers::default();
        let (ask, asked) = oneshot::channel::<()>();
        let (answer, answered) = std::sync::mpsc::channel();
        let worker = workers.take().unwrap();
        let work = worker.run(async move {
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
    async fn a_fork_takes_the_thread_with_the_fewest_forks() {
        let workers = Workers::default();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let id = async |worker: &Worker| worker.run(async { thread::current().id() }).await.unwrap();
        let alone = id(&workers.take().unwrap()).await;
        let mut forks = Vec::new();
        for _ in 0..processors {
            forks.push(workers.take().unwrap());
        }
        assert_eq!(id(&forks[0]).await, alone, "the fork before has ended");
        let mut ids = HashSet::new();
        for fork in &forks {
            ids.insert(id(fork).await);
        }
        assert_eq!(ids.len(), processors);
        let last = id(&forks.pop().unwrap()).await;
        assert_eq!(id(&workers.take().unwrap()).await, last);
    }

    #[tokio::test]
    async fn dropping_the_future_cancels_the_work() {
        let workers = Workers::default();
        let (alive, ended) = oneshot::channel::<()>();
        let worker = workers.take().unwrap();
        let mut work = Box::pin(worker.run(async move {
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
        workers.take().unwrap().run(async { drop(tokio::spawn(waiting)) }).await.unwrap();
        drop(workers);
        is_done.await.unwrap();
    }
}
