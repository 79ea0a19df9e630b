//! The writes to claims: allocations, reservations, and their end.

use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::{
    Error, ReconcileContext, ignore_conflict, ignore_not_found, uid_precondition,
};
use coracle_object_meta::{has_finalizer, set_finalizer};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use serde_json::json;

use super::pod_devices::{Cleanup, DeviceBinding};
use super::{ExtendedClaim, FINALIZER, allocation_of, is_reserved_for};
use crate::scheduler::Scheduler;
use crate::scheduler::cluster_events::Effect;
use crate::scheduler::executor::MANAGER;
use crate::scheduler::pod_info::uid;

/// The number of attempts to write a claim that others write, too.
const ATTEMPTS: usize = 5;

/// The error of a write, as kube-scheduler reports it.
type Failure = String;

impl Scheduler {
    /// Writes allocations and reservations to the claims of a pod. If that fails, the reservations
    /// are removed again.
    ///
    /// # Errors
    /// The text of the event, if a claim cannot be reserved.
    pub(in crate::scheduler) async fn bind_devices(
        &self,
        pod: &Pod,
        binding: &DeviceBinding,
        ctx: &ReconcileContext,
    ) -> Result<(), Failure> {
        let mut bound = Vec::new();
        for claim in &binding.claims {
            match self.bind_claim(pod, (*claim.claim).clone(), claim.allocation.as_ref(), ctx).await {
                Ok(claim) => bound.push(claim),
                Err(failure) => {
                    self.unreserve(pod, &bound, ctx).await;
                    return Err(failure);
                }
            }
        }
        let Some(extended) = &binding.extended else { return Ok(()) };
        let created = self.bind_extended_claim(pod, extended, ctx).await;
        if created.is_err() {
            self.unreserve(pod, &bound, ctx).await;
        }
        created
    }

    async fn bind_claim(
        &self,
        pod: &Pod,
        mut claim: ResourceClaim,
        allocation: Option<&AllocationResult>,
        ctx: &ReconcileContext,
    ) -> Result<ResourceClaim, Failure> {
        let name = NamespacedName::of(&claim);
        let planned = claim.clone();
        let mut conflict = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                let newer = ctx.api(&self.devices.claims).get(&name).await;
                let newer = newer.map_err(|error| text(&error));
                let newer = newer.and_then(|newer| newer.ok_or("not found".to_owned()));
                claim = newer.map_err(|error| format!("get updated claim {name} after conflict: {error}"))?;
                if !is_as_planned(&planned, &claim) {
                    return Err(format!("claim {name} was changed in the meantime"));
                }
            }
            match self.reserve_claim(pod, claim.clone(), allocation, ctx).await {
                Err(WriteError::Conflict(text)) => conflict = text,
                Err(WriteError::Failed(text)) => return Err(text),
                Ok(reserved) => return Ok(reserved),
            }
        }
        Err(conflict)
    }

    async fn reserve_claim(
        &self,
        pod: &Pod,
        mut claim: ResourceClaim,
        allocation: Option<&AllocationResult>,
        ctx: &ReconcileContext,
    ) -> Result<ResourceClaim, WriteError> {
        let name = NamespacedName::of(&claim);
        let failed = |what: &str| Err(WriteError::Failed(format!("claim {name} got {what} in the meantime")));
        let api = || ctx.api(&self.devices.claims).managed_by(MANAGER);
        if claim.metadata.deletion_timestamp.is_some() {
            return failed("deleted");
        }
        if is_reserved_for(&claim, pod) {
            return Ok(claim);
        }
        if let Some(allocation) = allocation {
            if allocation_of(&claim).is_some() {
                return failed("allocated elsewhere");
            }
            if !has_finalizer(&claim.metadata, FINALIZER) {
                set_finalizer(&mut claim.metadata, FINALIZER, true);
                let written = api().replace(&claim).await;
                claim = written
                    .map_err(|error| WriteError::of(&error, &format!("add finalizer to claim {name}")))?;
            }
            claim.status.get_or_insert_default().allocation = Some(allocation.clone());
        }
        let status = claim.status.get_or_insert_default();
        let Some(known) = &mut status.allocation else { return failed("deallocated elsewhere") };
        known.allocation_timestamp.get_or_insert_with(|| Time(self.clock.now()));
        status.reserved_for.get_or_insert_default().push(ResourceClaimConsumerReference {
            api_group: None,
            resource: "pods".to_owned(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: uid(pod).to_owned(),
        });
        let what = if allocation.is_some() { "allocation and reservation" } else { "reservation" };
        let written = api().replace_status(&claim).await;
        written.map_err(|error| WriteError::of(&error, &format!("add {what} to claim {name}")))
    }

    /// Creates the claim for the extended resources of a pod, and records it in the pod's status.
    async fn bind_extended_claim(
        &self,
        pod: &Pod,
        extended: &ExtendedClaim,
        ctx: &ReconcileContext,
    ) -> Result<(), Failure> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let created = ctx.api(&self.devices.claims).managed_by(MANAGER).create(&extended.claim).await;
        let created = created
            .map_err(|error| format!("create claim for extended resources {namespace}/: {}", text(&error)))?;
        let bound = self.bind_claim(pod, created.clone(), Some(&extended.allocation), ctx).await;
        let recorded = match bound {
            Ok(claim) => self.record_extended_claim(pod, &claim, extended, ctx).await.map(|()| claim),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = recorded {
            // The garbage collector deletes it with its pod otherwise; the failure before says more.
            self.delete_claim(&created, ctx).await.ok();
            return Err(failure);
        }
        Ok(())
    }

    async fn record_extended_claim(
        &self,
        pod: &Pod,
        claim: &ResourceClaim,
        extended: &ExtendedClaim,
        ctx: &ReconcileContext,
    ) -> Result<(), Failure> {
        let status = json!({
            "requestMappings": extended.mappings, "resourceClaimName": claim.metadata.name,
        });
        let patch = json!({"metadata": {"uid": uid(pod)}, "status": {"extendedResourceClaimStatus": status}});
        let api = ctx.api(&self.pods).managed_by(MANAGER);
        let name = NamespacedName::of(pod);
        let written = api.patch_status(&name, Patch::Strategic(patch)).await;
        written
            .map(drop)
            .map_err(|error| format!("update pod {name} ExtendedResourceClaimStatus: {}", text(&error)))
    }

    /// Removes a pod from the consumers of claims. Errors are ignored: the claims are released when
    /// the pod ends.
    pub(in crate::scheduler) async fn unreserve(
        &self,
        pod: &Pod,
        claims: &[ResourceClaim],
        ctx: &ReconcileContext,
    ) {
        for claim in claims.iter().filter(|claim| is_reserved_for(claim, pod)) {
            let patch = json!({
                "metadata": {"uid": claim.metadata.uid},
                "status": {"reservedFor": [{"$patch": "delete", "uid": uid(pod)}]},
            });
            let api = ctx.api(&self.devices.claims).managed_by(MANAGER);
            api.patch_status(&NamespacedName::of(claim), Patch::Strategic(patch)).await.ok();
        }
    }

    /// Deallocates or deletes a claim in favor of its pod, which is tried again then.
    pub(in crate::scheduler) async fn clean_up(
        &self,
        cleanup: &Cleanup,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        match cleanup {
            Cleanup::Deallocate(claim) => {
                let mut claim = (**claim).clone();
                claim.status = None;
                let api = ctx.api(&self.devices.claims).managed_by(MANAGER);
                // If it has changed, the watch reports that, and the pod is tried again.
                if ignore_not_found(ignore_conflict(api.replace_status(&claim).await))?.flatten().is_some() {
                    self.events.count(Effect::Devices);
                }
            }
            Cleanup::Delete(claim) => {
                if self.delete_claim(claim, ctx).await? {
                    self.events.count(Effect::Devices);
                }
            }
        }
        Ok(())
    }

    /// Deletes a claim. Returns `false` if there is none any more, or it has changed.
    async fn delete_claim(&self, claim: &ResourceClaim, ctx: &ReconcileContext) -> Result<bool, Error> {
        let api = || ctx.api(&self.devices.claims).managed_by(MANAGER);
        let Some(mut claim) = api().get(&NamespacedName::of(claim)).await? else { return Ok(false) };
        if has_finalizer(&claim.metadata, FINALIZER) {
            set_finalizer(&mut claim.metadata, FINALIZER, false);
            ignore_not_found(ignore_conflict(api().replace(&claim).await))?;
        }
        let deleted = api().delete(&claim, &uid_precondition(&claim)).await;
        Ok(ignore_not_found(ignore_conflict(deleted))?.flatten().is_some())
    }
}

/// Returns `true` if the live claim is the one that the decision was about: the same object, with
/// the same devices if it had any. A new allocation may be for another node.
fn is_as_planned(planned: &ResourceClaim, live: &ResourceClaim) -> bool {
    let is_same = |planned: &AllocationResult| {
        allocation_of(live).is_some_and(|live| {
            planned.devices == live.devices && planned.node_selector == live.node_selector
        })
    };
    planned.metadata.uid == live.metadata.uid && allocation_of(planned).is_none_or(is_same)
}

/// The error of a write of a claim.
enum WriteError {
    /// Another client has written the claim: the attempt is repeated.
    Conflict(Failure),
    Failed(Failure),
}

impl WriteError {
    fn of(error: &kube::Error, what: &str) -> WriteError {
        let failure = format!("{what}: {}", text(error));
        match error {
            kube::Error::Api(status) if status.code == 409 => WriteError::Conflict(failure),
            _ => WriteError::Failed(failure),
        }
    }
}

/// Returns the message of an error as a client of Go prints it.
fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_claim_that_was_replaced_or_moved_is_not_reserved() {
        let claim = |uid: &str, pool: Value| -> ResourceClaim {
            let result = json!({"request": "r", "driver": "d", "pool": pool, "device": "x"});
            let status = match pool.is_null() {
                true => json!({}),
                false => json!({"allocation": {"devices": {"results": [result]}}}),
            };
            serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": {}, "status": status})).unwrap()
        };
        let mut with_time = claim("u", json!("a"));
        with_time.status.as_mut().unwrap().allocation.as_mut().unwrap().allocation_timestamp =
            Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        for (case, planned, live, want) in [
            ("the same", claim("u", Value::Null), claim("u", Value::Null), true),
            ("another object", claim("u", Value::Null), claim("v", Value::Null), false),
            ("the same devices", claim("u", json!("a")), claim("u", json!("a")), true),
            ("with its time", claim("u", json!("a")), with_time, true),
            ("other devices", claim("u", json!("a")), claim("u", json!("b")), false),
            ("deallocated", claim("u", json!("a")), claim("u", Value::Null), false),
        ] {
            assert_eq!(is_as_planned(&planned, &live), want, "{case}");
        }
    }
}
