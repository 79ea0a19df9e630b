//! Batches of requests for one key: limited in number, and starting slowly.
//!
//! A server rejects too many requests at once, and a request that must fail, because of a quota for
//! example, fails for each of a thousand objects alike.

use std::future::Future;

use futures::{StreamExt, stream};

/// The largest number of concurrent requests in a batch.
const CONCURRENT: usize = 64;

/// Awaits all of `work`, at most `concurrent` of it at a time. Returns the outcomes in the order of
/// completion.
pub async fn execute_all<F: Future>(work: impl IntoIterator<Item = F>, concurrent: usize) -> Vec<F::Output> {
    let work: Vec<F> = work.into_iter().collect();
    stream::iter(work).buffer_unordered(concurrent).collect().await
}

/// Calls `action` for each item, in batches of 1, 2, 4, ... up to `largest`. A batch with a failure
/// is completed, and is the last one.
///
/// Source: kube-controller-manager's `slowStartBatch`.
///
/// # Errors
/// The first error.
pub async fn slow_start<'a, T, F, E>(
    items: &'a [T],
    largest: usize,
    action: impl Fn(&'a T) -> F,
) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
{
    let (mut rest, mut size) = (items, 1);
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(size.min(rest.len()));
        let outcomes = execute_all(batch.iter().map(&action), CONCURRENT).await;
        outcomes.into_iter().collect::<Result<(), E>>()?;
        rest = later;
        size = (2 * size).min(largest);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Runs `slow_start` on a number of items, of which `failing` fails, and returns the sizes of
    /// its batches.
    async fn batches(count: usize, largest: usize, failing: Option<usize>) -> Vec<usize> {
        let (items, tried) = ((0..count).collect::<Vec<_>>(), Mutex::new(vec![0]));
        let outcome = slow_start(&items, largest, |item| {
            let tried = &tried;
            async move {
                if let Some(last) = tried.lock().last_mut() {
                    *last += 1;
                }
                // Lets the other requests of the batch start before this one continues.
                tokio::task::yield_now().await;
                let mut tried = tried.lock();
                if tried.last() != Some(&0) {
                    tried.push(0);
                }
                if failing == Some(*item) { Err(*item) } else { Ok(()) }
            }
        })
        .await;
        assert_eq!(outcome, failing.map_or(Ok(()), Err));
        let mut tried = tried.into_inner();
        tried.retain(|size| *size > 0);
        tried
    }

    #[tokio::test]
    async fn batches_grow_until_something_fails() {
        for (count, largest, failing, want) in [
            (0, 500, None, &[][..]),
            (10, 500, None, &[1, 2, 4, 3]),
            (10, 2, None, &[1, 2, 2, 2, 2, 1]),
            (3, 1, None, &[1, 1, 1]),
            (100, 500, Some(0), &[1]),
            (100, 500, Some(4), &[1, 2, 4]),
        ] {
            assert_eq!(batches(count, largest, failing).await, want, "{count} {largest} {failing:?}");
        }
    }
}
