//! The timers of the API server that follow its clock. Timers that protect the server follow the
//! machine's time and are not listed here.

coracle_clock::timers! {
    /// The check which Events were not written for the time given by `--event-ttl`.
    pub EVENT_TTL = periodic("event-ttl");
    /// The check which APIServices are available.
    pub API_SERVICE_CHECK = upkeep("apiservice-check");
    /// The same while one of them is not available.
    pub API_SERVICE_RETRY = upkeep("apiservice-retry");
    /// The download of the OpenAPI documents of aggregated API servers.
    pub OPENAPI_REFRESH = upkeep("openapi-refresh");
    /// The batch of changes of APIServices after which OpenAPI documents are downloaded.
    pub OPENAPI_BATCH = pacing("openapi-batch");
    /// The retry after an API group could not be registered.
    pub API_GROUP_RETRY = pacing("api-group-retry");
    /// The retry after the status or the APIServices of a CustomResourceDefinition could not be
    /// written.
    pub CUSTOM_RESOURCE_DEFINITION_RETRY = pacing("customresourcedefinition-retry");
    /// The next look at the custom resources that remain of a terminating
    /// CustomResourceDefinition.
    pub CUSTOM_RESOURCE_DEFINITION_CONTENT = semantic("customresourcedefinition-content");
    /// The retry after deleted APIServices of custom groups could not be created anew.
    pub API_SERVICE_CREATION_RETRY = pacing("apiservice-creation-retry");
    /// The retry after the condition of a FlowSchema could not be written.
    pub FLOW_SCHEMA_RETRY = pacing("flowschema-retry");
    /// The retry after the status of a ValidatingAdmissionPolicy could not be written.
    pub VALIDATING_ADMISSION_POLICY_RETRY = pacing("validatingadmissionpolicy-retry");
    /// The same retries, after five in a row.
    pub RETRY_BACKOFF = semantic("apiserver-retry-backoff");
}
