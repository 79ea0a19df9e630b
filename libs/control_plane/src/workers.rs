//! The threads of forks.
//!
//! A fork is started and works on threads of its family, so that a client of the parent waits for none of it, and so that forks outlive the
//! runtime of the test that made their template. They are few, however many forks there are: one processor is left to the parent, whose
//! clients would otherwise wait until the kernel interrupts a fork.

use std::io;
use std::panic::resume_unwind;
use std::thread;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;

/// The threads of a family's forks, which begin with the first one and end when this is dropped.
#[derive(Default)]
pub struct Workers(Mutex<Option<Runtime>>);

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

    fn handle(&self) -> io::Result<Handle> {
        let mut runtime = self.0.lock();
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let threads = thread::available_parallelism().map_or(1, |processors| processors.get() - 1).max(1);
        let begun = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("coracle-forks")
            .enable_all()
            .build()?;
        Ok(runtime.insert(begun).handle().clone())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // The last owner may run on one of these threads, and a thread cannot join itself.
        if let Some(runtime) = self.0.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
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
