//! Metrics of other systems, from the external metrics API (`external.metrics.k8s.io`).
//!
//! Source: `k8s.io/metrics/pkg/client/external_metrics`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use serde::Deserialize;

use super::{NO_QUANTITY, Query};
use crate::horizontal_pod_autoscaler::metric_source::milli;

#[derive(Deserialize)]
struct ExternalMetricValueList {
    items: Option<Vec<ExternalMetricValue>>,
}

#[derive(Deserialize)]
struct ExternalMetricValue {
    value: Quantity,
}

/// Reads the sum of a metric's values, in thousandths.
///
/// # Errors
/// kube-controller-manager's message about the failure.
pub async fn read(client: &Client, namespace: &str, metric: &str, selector: &str) -> Result<i64, String> {
    let failed = |error: String| format!("unable to fetch metrics from external metrics API: {error}");
    let query = Query {
        resource: format!("{metric}.external.metrics.k8s.io"),
        name: None,
        path: &["apis", "external.metrics.k8s.io", "v1beta1", "namespaces", namespace, metric],
        parameters: &[("labelSelector", selector)],
    };
    let list: ExternalMetricValueList = query.send(client).await.map_err(failed)?;
    let values = list.items.unwrap_or_default();
    if values.is_empty() {
        return Err("no metrics returned from external metrics API".to_owned());
    }
    values.iter().try_fold(0i64, |sum, ExternalMetricValue { value }| {
        let value = milli(value).ok_or_else(|| failed(NO_QUANTITY.to_owned()))?;
        Ok(sum.saturating_add(value))
    })
}
