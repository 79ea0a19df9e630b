//! Administrative access to devices, which only namespaces with a label may have.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::field::{Errors, Field, Path};
use coracle_apimachinery::names::GroupResource;

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Validates that the namespace of a claim or template may have the access that its requests ask
/// for.
///
/// # Errors
/// The errors of the cluster.
pub fn validate_requests(
    object: &Field<'_>,
    requests: &Field<'_>,
    cluster: &dyn Cluster,
    errors: &mut Errors,
) -> Result<()> {
    let asking = requests.items().position(|request| request.walk("exactly.adminAccess").bool());
    match asking {
        // kube-apiserver reports the path of an earlier version, and for templates that of a claim.
        Some(position) => {
            let path = Path::of("spec.devices.requests").index(position).child("adminAccess");
            require_label(object, &Field::at(None, path), cluster, errors)
        }
        None => Ok(()),
    }
}

/// Validates that the namespace of a claim may have the access that newly allocated devices give.
///
/// # Errors
/// The errors of the cluster.
pub fn validate_results(
    object: &Field<'_>,
    old: &Field<'_>,
    cluster: &dyn Cluster,
    errors: &mut Errors,
) -> Result<()> {
    let (new, old) = (object.walk(RESULTS), old.walk(RESULTS));
    let granted = |results: &Field<'_>| {
        results.items().map(|result| result.get("adminAccess").bool()).position(|granted| granted)
    };
    match (granted(&new), granted(&old)) {
        (Some(position), None) => {
            let reported = Field::at(None, new.path().index(position).child("adminAccess"));
            require_label(object, &reported, cluster, errors)
        }
        _ => Ok(()),
    }
}

const RESULTS: &str = "status.allocation.devices.results";

fn require_label(
    object: &Field<'_>,
    access: &Field<'_>,
    cluster: &dyn Cluster,
    errors: &mut Errors,
) -> Result<()> {
    let namespace = object.walk("metadata.namespace").str();
    let label = cluster.label(&GroupResource::new("", "namespaces"), "", namespace, LABEL)?;
    errors.push_if(label.as_deref() != Some("true"), || {
        access.forbidden(format!(
            "admin access to devices requires the `{LABEL}: true` label on the containing namespace"
        ))
    });
    Ok(())
}
