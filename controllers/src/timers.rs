//! The timers of the controllers.

coracle_clock::timers! {
    /// The next start of a CronJob.
    pub CRON_JOB_SCHEDULE = semantic("cronjob-schedule");
    /// The batch of changes of pods, or of the status, after which a Job is reconciled.
    pub JOB_BATCH = pacing("job-batch");
    /// The backoff of a Job after pods failed.
    pub JOB_BACKOFF = semantic("job-backoff");
    /// The end of a Job's `activeDeadlineSeconds`.
    pub JOB_DEADLINE = semantic("job-deadline");
    /// The end of a Job's `ttlSecondsAfterFinished`.
    pub TTL_AFTER_FINISHED = semantic("ttl-after-finished");
    /// The end of a Deployment's `progressDeadlineSeconds`.
    pub PROGRESS_DEADLINE = semantic("progress-deadline");
    /// The moment at which a pod was ready for the `minReadySeconds` of its ReplicaSet, DaemonSet
    /// or StatefulSet.
    pub MIN_READY = semantic("min-ready");
    /// The time after which pods are created again in place of those that kubelets have rejected.
    pub REJECTED_PODS = semantic("rejected-pods");
    /// The backoff after a pod of a DaemonSet failed on a node.
    pub DAEMON_SET_BACKOFF = semantic("daemonset-backoff");
    /// The batch of deleted claims after which a StatefulSet is reconciled.
    pub STATEFUL_SET_CLAIM = pacing("statefulset-claim");
    /// The next evaluation of a HorizontalPodAutoscaler.
    pub HORIZONTAL_POD_AUTOSCALER = semantic("horizontal-pod-autoscaler");
    /// The time by which a pod that was to be disrupted must have been deleted, by its
    /// PodDisruptionBudget.
    pub DISRUPTED_POD = semantic("disrupted-pod");
    /// The end of the `DisruptionTarget` condition of a pod that was not deleted.
    pub STALE_DISRUPTION = semantic("stale-disruption");
    /// The check for nodes without heartbeats.
    pub NODE_MONITOR = periodic("node-monitor");
    /// The same after the readiness, the taints or the labels of a node have changed.
    pub NODE_CHANGE = semantic("node-change");
    /// The end of the time for which a node may be silent.
    pub NODE_GRACE_PERIOD = watchdog("node-grace-period");
    /// The next node that is tainted, at the eviction rate of its zone.
    pub NODE_EVICTION_RATE = semantic("node-eviction-rate");
    /// The end of a pod's `tolerationSeconds`.
    pub TAINT_EVICTION = semantic("taint-eviction");
    /// The check for pods that are left over.
    pub POD_GARBAGE_COLLECTION = periodic("pod-garbage-collection");
    /// The same after a pod or a node has changed so that pods may be left over.
    pub LEFT_OVER_PODS = semantic("left-over-pods");
    /// The check for old CertificateSigningRequests.
    pub CERTIFICATE_SIGNING_REQUEST_CLEANUP = periodic("certificatesigningrequest-cleanup");
    /// The expiration of a bootstrap token.
    pub BOOTSTRAP_TOKEN_EXPIRATION = semantic("bootstrap-token-expiration");
    /// The pause before the content of a terminating namespace is deleted.
    pub NAMESPACE_DELETION = pacing("namespace-deletion");
    /// The next look at the content that remains in a terminating namespace.
    pub NAMESPACE_CONTENT = semantic("namespace-content");
    /// The next look at the IPAddresses that use a terminating ServiceCIDR.
    pub SERVICE_CIDR_ADDRESSES = semantic("servicecidr-addresses");
    /// The grace period of a terminating ServiceCIDR.
    pub SERVICE_CIDR_DELETION = semantic("servicecidr-deletion");
    /// The periodic recalculation of a ResourceQuota.
    pub RESOURCE_QUOTA_RESYNC = periodic("resourcequota-resync");
    /// The batch of changes after which the volumes that are attached to a node are written.
    pub NODE_VOLUMES_BATCH = pacing("node-volumes-batch");
    /// The batch of deletions after which a ResourceQuota is recalculated.
    pub RESOURCE_QUOTA_BATCH = pacing("resourcequota-batch");
    /// The recalculation of a ResourceQuota that an admission updated meanwhile.
    pub RESOURCE_QUOTA_CONFLICT = pacing("resourcequota-conflict");
    /// The check of EndpointSlices that another client changed.
    pub FOREIGN_ENDPOINT_SLICE = pacing("foreign-endpointslice");
    /// The rate at which the endpoints of one Service are written.
    pub ENDPOINTS_RATE = pacing("endpoints-rate");
    /// The periodic check of claims and volumes.
    pub VOLUME_RESYNC = periodic("volume-resync");
    /// The time for which a volume is available at least before a waiting claim is bound to it.
    pub VOLUME_AVAILABLE = pacing("volume-available");
}
