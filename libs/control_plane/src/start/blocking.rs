//! Work that blocks its thread.

use crate::error::Error;

/// Begins blocking work on another thread. The future waits for it.
pub fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> impl Future<Output = Result<T, Error>> + Send + 'static {
    let working = tokio::task::spawn_blocking(work);
    async move {
        match working.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down, and the caller with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}
