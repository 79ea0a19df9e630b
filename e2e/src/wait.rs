//! Waiting for a condition, with an error that says what was not met.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Resource;
use kube::api::Api;
use kube::runtime::wait::await_condition;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// Far longer than anything should take.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Polls until the value meets a condition.
pub async fn until<T>(
    description: &str,
    mut get: impl AsyncFnMut() -> Result<T>,
    condition: impl Fn(&T) -> bool,
) -> Result<T>
where
    T: Debug,
{
    let began = Instant::now();
    loop {
        let value = get().await?;
        if condition(&value) {
            return Ok(value);
        }
        ensure!(began.elapsed() < DEADLINE, "not in {DEADLINE:?}: {description}, but {value:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until an object, or its absence, meets a condition.
pub async fn until_object<K>(
    api: Api<K>,
    name: &str,
    condition: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let so = await_condition(api.clone(), name, |object: Option<&K>| condition(object));
    match timeout(DEADLINE, so).await {
        Ok(object) => Ok(object?),
        Err(late) => {
            let object = api.get_opt(name).await?;
            Err(late).with_context(|| format!("{name} does not come to be so: {object:?}"))
        }
    }
}
