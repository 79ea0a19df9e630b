//! Services, policies, extensions of the API, custom resources, and refused requests.

use serde_json::{Value, json};

use super::check;
use super::fake::{alice, cluster, condition, node, object, pod, unready};

fn labelled(mut pod: Value) -> Value {
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod
}

fn service(spec: Value) -> Value {
    object("Service", "web", json!({"spec": spec}))
}

#[test]
fn services_and_ingresses() {
    let selector = json!({"selector": {"app": "web"}});
    let balancer = json!({"type": "LoadBalancer"});
    let ingress = |spec: Value| object("Ingress", "web", json!({"spec": spec}));
    check(vec![
        (
            "no pod matches",
            "services web",
            cluster([service(selector.clone()), pod("other")]),
            "notReady: service/web reaches no pod because its selector app=web matches none in namespace \
             shop. Compare the labels of the pods: kubectl get pods -n shop --show-labels",
            &["spec.selector: app=web"],
        ),
        (
            "no pod is ready",
            "services web",
            cluster([
                node("node-0"),
                service(selector.clone()),
                labelled(unready("web-0", "Running", json!({}))),
            ]),
            "notReady: service/web has no ready endpoint: its selector app=web matches pod/web-0, which is \
             not ready.",
            &["a ready pod", "pod/shop/web-0"],
        ),
        (
            "no such port",
            "services web",
            cluster([
                service(json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]})),
                labelled(pod("web-0")),
            ]),
            "notReady: service/web has no endpoint for its target port http: no container of its pods has a \
             port of that name.",
            &["targetPort=http"],
        ),
        (
            "a load balancer",
            "services web",
            cluster([service(balancer)]),
            "notReady: service/web has no external address: it waits for an address from the controller of \
             load balancers. It has none as long as no such controller runs.",
            &["status.loadBalancer"],
        ),
        ("a Service", "services web", cluster([service(selector), labelled(pod("web-0"))]), "none", &[]),
        (
            "an Ingress without class",
            "ingresses.networking.k8s.io web",
            cluster([ingress(json!({}))]),
            "notReady: ingress/web has no class, and no IngressClass was the default when it was created, \
             so that a controller that serves Ingresses of its class alone passes it over. Set spec.ingressClassName.",
            &["spec.ingressClassName"],
        ),
        (
            "a class that does not exist",
            "ingresses.networking.k8s.io web",
            cluster([ingress(json!({"ingressClassName": "nginx"}))]),
            "notReady: ingress/web is served by no controller: its IngressClass nginx does not exist.",
            &[],
        ),
        (
            "an Ingress to no Service",
            "ingresses.networking.k8s.io web",
            cluster([
                object("IngressClass", "nginx", json!({})),
                ingress(json!({"ingressClassName": "nginx", "defaultBackend": {"service": {"name": "web"}}})),
            ]),
            "notReady: ingress/web leads to service/web, which does not exist.",
            &["service/web, which does not exist"],
        ),
    ]);
}

#[test]
fn policies() {
    let budget = object(
        "PodDisruptionBudget",
        "web",
        json!({
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2},
        }),
    );
    let quota = object(
        "ResourceQuota",
        "small",
        json!({"status": {"hard": {"pods": "2", "services": "5"}, "used": {"pods": "2", "services": "1"}}}),
    );
    let scaler = |conditions: Value| {
        object(
            "HorizontalPodAutoscaler",
            "web",
            json!({
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 3},
                "status": {"conditions": conditions},
            }),
        )
    };
    check(vec![
        (
            "a budget",
            "poddisruptionbudgets.policy web",
            cluster([budget.clone()]),
            "notReady: poddisruptionbudget/web allows no eviction now: 2 of 2 pods are healthy, and 2 have \
             to be (minAvailable 2); an eviction needs 3, more than there are.",
            &["status.disruptionsAllowed: 0"],
        ),
        (
            "a refused eviction",
            "pods web-0",
            cluster([node("node-0"), labelled(pod("web-0")), budget]).refused(
                "pods web-0",
                "create",
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
            ),
            "notReady: The eviction of pod/web-0 that alice with kubectl asked for was refused at \
             10:04:00Z (60 seconds ago): poddisruptionbudget.policy/shop/web allows none: 2 of 2 pods are \
             healthy, and 2 have to be (minAvailable 2); an eviction needs 3, more than there are.",
            &["poddisruptionbudget.policy/shop/web: status.disruptionsAllowed: 0; 2 of 2 pods are healthy"],
        ),
        (
            "a quota that is used up",
            "resourcequotas small",
            cluster([quota]),
            "notReady: resourcequota/small is used up: pods (2 of 2). Objects that need more of that are \
             refused with 403. Raise spec.hard, or delete objects.",
            &["status.used: pods"],
        ),
        (
            "no metrics",
            "horizontalpodautoscalers.autoscaling web",
            cluster([scaler(json!([condition(
                "ScalingActive",
                "False",
                "FailedGetResourceMetric",
                "no metrics"
            )]))]),
            "notReady: horizontalpodautoscaler/web does not scale deployment/web: its condition \
             ScalingActive is False since 10:00:00Z (5 minutes ago): FailedGetResourceMetric: no metrics.",
            &["ScalingActive=False"],
        ),
        (
            "a limit",
            "horizontalpodautoscalers.autoscaling web",
            cluster([scaler(json!([condition(
                "ScalingLimited",
                "True",
                "TooManyReplicas",
                "the desired replica count is more than the maximum replica count"
            )]))]),
            "notReady: horizontalpodautoscaler/web keeps deployment/web within its limits of 1 to 3 \
             replicas, though its metrics ask for another number: its condition ScalingLimited is True \
             since 10:00:00Z (5 minutes ago): TooManyReplicas: the desired replica count is more than the \
             maximum replica count.",
            &[],
        ),
    ]);
}

#[test]
fn extensions_of_the_api() {
    let definition = |conditions: Value| {
        object(
            "CustomResourceDefinition",
            "widgets.example.com",
            json!({"status": {"conditions": conditions}}),
        )
    };
    let definitions = "customresourcedefinitions.apiextensions.k8s.io widgets.example.com";
    let api = object(
        "APIService",
        "v1.metrics",
        json!({
            "spec": {"group": "metrics", "version": "v1", "service": {"namespace": "shop", "name": "web"}},
            "status": {"conditions": [condition("Available", "False", "MissingEndpoints", "endpoints for service/web in \"shop\" have no addresses")]},
        }),
    );
    let request = |conditions: Value| {
        object(
            "CertificateSigningRequest",
            "csr-1",
            json!({"spec": {"signerName": "example.com/signer"}, "status": {"conditions": conditions}}),
        )
    };
    let requests = "certificatesigningrequests.certificates.k8s.io csr-1";
    let webhook = object(
        "ValidatingWebhookConfiguration",
        "check",
        json!({"webhooks": [{"name": "check.example.com", "clientConfig": {"service": {"namespace": "shop", "name": "web"}}}]}),
    );
    check(vec![
        (
            "names",
            definitions,
            cluster([definition(json!([condition(
                "NamesAccepted",
                "False",
                "ListKindConflict",
                "\"WidgetList\" is already in use"
            )]))]),
            "notReady: customresourcedefinition/widgets.example.com does not serve its resource: its \
             condition NamesAccepted is False since 10:00:00Z (5 minutes ago): ListKindConflict: \
             \"WidgetList\" is already in use. Another definition of its group has one of its names \
             (plural, singular, short names or kind): choose others.",
            &["NamesAccepted=False"],
        ),
        (
            "not established",
            definitions,
            cluster([definition(json!([
                condition("NamesAccepted", "True", "NoConflicts", ""),
                condition("Established", "False", "Installing", "")
            ]))]),
            "notReady: customresourcedefinition/widgets.example.com does not serve its resource: its \
             condition Established is False since 10:00:00Z (5 minutes ago): Installing. Its objects can be \
             created once it is established.",
            &[],
        ),
        (
            "an APIService",
            "apiservices.apiregistration.k8s.io v1.metrics",
            cluster([api, service(json!({"selector": {"app": "web"}}))]),
            "notReady: apiservice/v1.metrics is not available, so that no request for metrics/v1 succeeds: its condition Available is False since 10:00:00Z (5 minutes ago): MissingEndpoints: \
             endpoints for service/web in \"shop\" have no addresses. It is served by service/shop/web.",
            &["Available=False", "service/shop/web: service/web reaches no pod"],
        ),
        (
            "a request for a certificate",
            requests,
            cluster([request(json!([]))]),
            "notReady: certificatesigningrequest/csr-1 is pending: nobody has approved or denied it. To \
             approve it: kubectl certificate approve csr-1",
            &["kubectl certificate approve csr-1"],
        ),
        (
            "an approved one",
            requests,
            cluster([request(json!([condition("Approved", "True", "", "")]))]),
            "notReady: certificatesigningrequest/csr-1 is approved, and waits for its signer \
             example.com/signer to issue the certificate.",
            &[],
        ),
        (
            "a denied one",
            requests,
            cluster([request(json!([condition("Denied", "True", "No", "never")]))]),
            "notReady: certificatesigningrequest/csr-1 gets no certificate: its condition Denied is True \
             since 10:00:00Z (5 minutes ago): No: never.",
            &[],
        ),
        (
            "a webhook",
            "validatingwebhookconfigurations.admissionregistration.k8s.io check",
            cluster([webhook]),
            "notReady: validatingwebhookconfiguration/check has a webhook that cannot be called, \
             check.example.com: service/shop/web cannot be reached; requests that it is called for are \
             refused (failurePolicy: Fail).",
            &["service/shop/web: the service does not exist"],
        ),
    ]);
}

#[test]
fn custom_resources_and_refused_requests() {
    let widget = |metadata: Value, status: Value| {
        object("Widget", "w", json!({"metadata": metadata, "status": status}))
    };
    let denied = "admission webhook \"check.example.com\" denied the request: no";
    check(vec![
        (
            "a condition",
            "widgets.example.com w",
            cluster([widget(
                json!({}),
                json!({"conditions": [condition("Ready", "False", "NoDisk", "the disk is missing."), condition("Progress", "True", "", "")]}),
            )]),
            "notReady: widget.example.com/w is not ready: its condition Ready is False since 10:00:00Z (5 \
             minutes ago): NoDisk: the disk is missing.",
            &["status.conditions: Ready=False; since 2026-11-27T10:00:00Z; NoDisk: the disk is missing"],
        ),
        (
            "degraded",
            "widgets.example.com w",
            cluster([widget(
                json!({}),
                json!({"conditions": [condition("Ready", "True", "", ""), condition("Degraded", "True", "Slow", "")]}),
            )]),
            "notReady: widget.example.com/w is not ready: its condition Degraded is True since 10:00:00Z (5 \
             minutes ago): Slow.",
            &["Degraded=True"],
        ),
        (
            "a generation",
            "widgets.example.com w",
            cluster([widget(json!({"generation": 4}), json!({"observedGeneration": 3}))]),
            "notReady: widget.example.com/w was changed and its controller has not acted on that yet: \
             metadata.generation is 4, status.observedGeneration is 3. If that lasts, the controller does \
             not run or fails.",
            &["status.observedGeneration: 3"],
        ),
        (
            "a webhook that refused",
            "widgets.example.com w",
            cluster([widget(json!({}), json!({}))]).refused(
                "widgets.example.com w",
                "patch",
                403,
                "Forbidden",
                denied,
            ),
            "notReady: The last request about widget.example.com/w was refused: alice with kubectl tried \
             to patch it at 10:04:00Z (60 seconds ago), and the response was 403 Forbidden: admission \
             webhook \"check.example.com\" denied the request: no (an admission webhook refused it).",
            &["by alice with kubectl; since 2026-11-27T10:04:00Z; 403 Forbidden: admission webhook"],
        ),
        (
            "a refused request before the last write",
            "widgets.example.com w",
            cluster([widget(json!({}), json!({}))])
                .refused("widgets.example.com w", "patch", 403, "Forbidden", denied)
                .version("10:04:30", alice(), widget(json!({}), json!({}))),
            "none",
            &[],
        ),
        (
            "a request that was based on an old version",
            "widgets.example.com w",
            cluster([widget(json!({}), json!({}))]).refused(
                "widgets.example.com w",
                "update",
                409,
                "Conflict",
                "Operation cannot be fulfilled on widgets \"w\": the object has been modified",
            ),
            "notReady: The last request about widget.example.com/w was refused: alice with kubectl tried \
             to update it at 10:04:00Z (60 seconds ago), and the response was 409 Conflict: Operation \
             cannot be fulfilled on widgets \"w\": the object has been modified (it was based on an old \
             version: read the object again and repeat the change).",
            &["409 Conflict"],
        ),
        (
            "a refused creation",
            "widgets.example.com w",
            cluster([]).refused(
                "widgets.example.com w",
                "create",
                403,
                "Forbidden",
                "widgets \"w\" is forbidden: exceeded quota: small, requested: count/widgets=1",
            ),
            "notReady: widget.example.com/w does not exist: alice with kubectl tried to create it at \
             10:04:00Z (60 seconds ago), and the response was 403 Forbidden: widgets \"w\" is forbidden: \
             exceeded quota: small, requested: count/widgets=1 (a ResourceQuota refused it).",
            &["403 Forbidden", "resourcequota/shop/small"],
        ),
        ("nothing to tell", "configmaps c", cluster([object("ConfigMap", "c", json!({}))]), "none", &[]),
    ]);
}
