//! Bootstrap: the objects that kube-apiserver creates at start.
//!
//! `objects.jsonl` contains them, one a line, in the order of their creation: namespaces, API
//! services, priority levels and flow schemas, the service CIDR, priority classes, the default RBAC
//! roles and bindings, and the `kubernetes` service. They are in their stored version, without the
//! fields that the store sets.
//!
//! The file has what controllers add to these objects, such as the rules of aggregated roles;
//! [`objects`] leaves out what belongs to a controller that does not run.
//!
//! Service accounts and `kube-root-ca.crt` are created by controllers.

use serde_json::Value;

const OBJECTS: &str = include_str!("objects.jsonl");

/// The parameters of the objects.
pub struct Parameters<'a> {
    /// The current time in RFC 3339, whole seconds.
    pub now: &'a str,
    /// The port on which the API is served.
    pub secure_port: u16,
    /// The block of cluster IPs, such as `10.0.0.0/24`.
    pub service_cidr: &'a str,
    /// The cluster IP of the `kubernetes` service: the first address of the block.
    pub kubernetes_ip: &'a str,
    /// Whether a controller runs, by kube-controller-manager's name.
    pub is_selected: &'a dyn Fn(&str) -> bool,
}

/// Returns all objects, each with `apiVersion` and `kind`, in the order in which they are created.
pub fn objects(parameters: &Parameters<'_>) -> Vec<Value> {
    let objects = OBJECTS.lines().map(|line| object(line, parameters));
    objects.map(|object| without_unselected(object, parameters.is_selected)).collect()
}

/// Removes what only a controller adds that does not run.
fn without_unselected(mut object: Value, is_selected: &dyn Fn(&str) -> bool) -> Value {
    match object["kind"].as_str().unwrap_or("") {
        "ClusterRole"
            if object["aggregationRule"].is_object()
                && !is_selected("clusterrole-aggregation-controller") =>
        {
            object["rules"] = Value::Null;
        }
        "ServiceCIDR" if !is_selected("service-cidr-controller") => {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("finalizers");
            }
            object["status"]["conditions"][0]["message"] = "Kubernetes default Service CIDR is ready".into();
        }
        _ => {}
    }
    object
}

fn object(line: &str, parameters: &Parameters<'_>) -> Value {
    let parse = |text: &str| serde_json::from_str(text).expect("every line of objects.jsonl is JSON");
    if !line.contains("${") {
        return parse(line);
    }
    let today = parameters.now.split('T').next().unwrap_or_default();
    let filled = line
        .replace("${now}", parameters.now)
        .replace("${today}", today)
        .replace("${service-cidr}", parameters.service_cidr)
        .replace("${kubernetes-ip}", parameters.kubernetes_ip)
        .replace("\"${secure-port}\"", &parameters.secure_port.to_string());
    parse(&filled)
}
