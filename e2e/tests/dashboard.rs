//! The Grafana dashboard in `docs/grafana` uses only existing metrics.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::binary::workspace;
use coracle_e2e::cluster;
use coracle_e2e::http::{Connection, Endpoint};
use coracle_e2e::wait::until;
use http_body_util::BodyExt;
use regex::Regex;
use serde_json::{Value, json};

/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

/// The names of metrics, each with its labels.
type Metrics = BTreeMap<String, BTreeSet<String>>;

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

/// Returns the metrics and the labels that occur in an expression.
fn metrics_of(expression: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let text = regex(r#""[^"]*"|\[[^\]]*\]"#).replace_all(expression, "");
    let mut labels = BTreeSet::new();
    let identifier = regex("[a-zA-Z_][a-zA-Z0-9_]*");
    let mut take_labels =
        |list: &str| labels.extend(identifier.find_iter(list).map(|m| m.as_str().to_owned()));
    let lists = regex(r"\{([^}]*)\}|\b(?:by|without|on|ignoring)\s*\(([^)]*)\)");
    for list in lists.captures_iter(&text) {
        list.iter().skip(1).flatten().for_each(|list| take_labels(list.as_str()));
    }
    let text = lists.replace_all(&text, " ");
    let names = regex(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\(?)");
    let operators = ["and", "or", "unless", "bool", "offset"];
    let names = names.captures_iter(&text).filter(|name| name[2].is_empty()).map(|name| name[1].to_owned());
    (names.filter(|name| !operators.contains(&name.as_str())).collect(), labels)
}

/// Returns the metrics in the text of `/metrics`, with their labels.
fn samples(text: &str) -> Metrics {
    let sample = regex(r"(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ");
    let label = regex(r#"([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*""#);
    let mut metrics = Metrics::new();
    for found in sample.captures_iter(text) {
        let labels = found.get(2).map_or("", |labels| labels.as_str());
        let labels = label.captures_iter(labels).map(|label| label[1].to_owned());
        metrics.entry(found[1].to_owned()).or_default().extend(labels);
    }
    metrics
}

/// Returns the metrics and the labels in a dashboard's expressions and variables that do not exist,
/// each as one line.
fn unknown(dashboard: &Value, metrics: &Metrics) -> Result<Vec<String>> {
    let mut unknown = Vec::new();
    let mut check = |title: &str, expression: &str| {
        let (names, labels) = metrics_of(expression);
        let mut known: BTreeSet<&str> = OF_PROMETHEUS.into();
        for name in &names {
            match metrics.get(name) {
                Some(labels) => known.extend(labels.iter().map(String::as_str)),
                None => unknown.push(format!("{title}: no metric {name}")),
            }
        }
        let labels = labels.iter().filter(|label| !known.contains(label.as_str()));
        unknown.extend(labels.map(|label| format!("{title}: no label {label} of {names:?}")));
        names.len()
    };
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let title = panel["title"].as_str().context("no title")?;
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().filter(|targets| !targets.is_empty());
        for target in targets.with_context(|| format!("{title}: no targets"))? {
            let expression = target["expr"].as_str().with_context(|| format!("{title}: no expression"))?;
            ensure!(check(title, expression) > 0, "{title}: no metric in {expression}");
        }
    }
    for variable in dashboard["templating"]["list"].as_array().context("no variables")? {
        if let Some(query) = variable["query"]["query"].as_str() {
            let values = regex(r"^label_values\((.*), *(\w+)\)$");
            let values = values.captures(query).with_context(|| format!("another query: {query}"))?;
            check(query, &format!("sum by ({}) ({})", &values[2], &values[1]));
        }
    }
    Ok(unknown)
}

#[test]
fn unknown_metrics_and_labels_of_expressions_are_found() {
    let text = "# HELP a_seconds x\na_seconds_bucket{verb=\"GET\",le=\"+Inf\"} 1\nb_total 2\nc{x=\"a } \\\" b=\",y=\"\"} 3e5\n";
    let metrics = samples(text);
    let names: Vec<&str> = metrics.keys().map(String::as_str).collect();
    assert_eq!(names, ["a_seconds_bucket", "b_total", "c"]);
    for (expression, want) in [
        (r#"histogram_quantile(0.9, sum by (le, verb) (rate(a_seconds_bucket{job="x"}[5m])))"#, vec![]),
        ("topk(10, c) / b_total", vec![]),
        ("max by (x, y) (c) and b_total", vec![]),
        ("rate(a_seconds[$__rate_interval])", vec!["t: no metric a_seconds"]),
        ("sum(b_total) by (verb)", vec![r#"t: no label verb of {"b_total"}"#]),
        (r#"b_total{code=~"5.."}"#, vec![r#"t: no label code of {"b_total"}"#]),
    ] {
        let panel = json!({"title": "t", "type": "timeseries", "targets": [{"expr": expression}]});
        let dashboard = json!({"panels": [panel], "templating": {"list": []}});
        assert_eq!(unknown(&dashboard, &metrics).expect("a dashboard"), want, "{expression}");
    }
}

async fn send(to: &mut Connection, method: &str, path: &str, object: &Value) -> Result<()> {
    let response = to.call(method, path, &[], Some(Bytes::from(object.to_string()))).await?;
    let text = String::from_utf8_lossy(&response.body);
    ensure!((200..300).contains(&response.status), "{method} {path}: {} {text}", response.status);
    Ok(())
}

/// Causes the activity that the dashboard shows: a webhook that cannot be reached, a controller, a
/// watch with an event.
async fn load(endpoint: &Endpoint) -> Result<()> {
    const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let mut connection = endpoint.connect().await?;
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
    });
    let webhook = json!({
        "name": "nobody.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [rule],
        "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    send(&mut connection, "POST", webhooks, &json!({"metadata": {"name": "nobody"}, "webhooks": [webhook]}))
        .await?;
    let mut watching = endpoint.connect().await?;
    let mut events = watching.open("GET", &format!("{CONFIG_MAPS}?watch=true"), &[], None).await?.into_body();
    send(&mut connection, "POST", CONFIG_MAPS, &json!({"metadata": {"name": "some"}})).await?;
    events.frame().await.context("no event")??;
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": pod});
    let deployment = json!({"metadata": {"name": "web"}, "spec": spec});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    send(&mut connection, "POST", deployments, &deployment).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_metrics_that_there_are() -> Result<()> {
    let file = workspace().join("docs/grafana/coracle.json");
    let dashboard: Value = serde_json::from_slice(&std::fs::read(&file).context("the dashboard")?)?;
    let cluster = cluster().start().await?;
    let endpoint = cluster.endpoint().await?;
    load(&endpoint).await?;
    let missing = async || {
        let response = endpoint.connect().await?.call("GET", "/metrics", &[], None).await?;
        ensure!(response.status == 200, "{}", response.status);
        unknown(&dashboard, &samples(&String::from_utf8_lossy(&response.body)))
    };
    until("all metrics of the dashboard are there", missing, Vec::is_empty).await?;
    Ok(())
}
