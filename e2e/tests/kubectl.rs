//! kubectl with Coracle, as on a command line.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster;
use coracle_e2e::kubectl::{Scenario, command, kubectl, run_scenario};
use coracle_e2e::wait::DEADLINE;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

async fn run(scenario: &Scenario) -> Result<()> {
    // The only controller is the one that creates service accounts, which pods need; there are no
    // nodes.
    run_scenario(
        cluster()
            .with_service_account()
            .flag("--controllers", "serviceaccount-controller")
            .flag("--nodes", "0"),
        scenario,
    )
    .await
}

#[tokio::test]
async fn objects_are_created_read_and_deleted() -> Result<()> {
    run(&[
        ("apply -f deployment.yaml -f service.yaml", &["deployment.apps/web created", "service/web created"]),
        ("apply -f deployment.yaml", &["deployment.apps/web unchanged"]),
        ("get deployments", &["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "web    0/2"]),
        ("get deploy -o wide", &["CONTAINERS", "IMAGES", "SELECTOR", "registry.example/web:1", "app=web"]),
        ("get deploy web -o yaml", &["kind: Deployment\n", "- image: registry.example/web:1\n"]),
        ("get deploy web -o json", &["\"kind\": \"Deployment\",\n", "\"replicas\": 2,\n"]),
        ("get deploy,svc -l app=web -o name", &["deployment.apps/web\n"]),
        ("get deploy web -o jsonpath={.spec.template.spec.containers[0].resources.requests.cpu}", &["100m"]),
        (
            "get deploy -o custom-columns=WHO:.metadata.name,HOW-MANY:.spec.replicas",
            &["WHO   HOW-MANY\nweb   2\n"],
        ),
        ("get deploy --show-labels --all-namespaces", &["NAMESPACE", "LABELS", "default", "app=web"]),
        ("get service web", &["TYPE", "CLUSTER-IP", "PORT(S)", "ClusterIP", "<none>", "80/TCP"]),
        ("get svc --field-selector metadata.name=web -o name", &["service/web\n"]),
        ("get all", &["deployment.apps/web", "service/web", "service/kubernetes"]),
        ("get namespaces", &["NAME", "STATUS", "default", "kube-system", "Active"]),
        (
            "describe deployment web",
            &["Name:                   web\n", "2 desired", "registry.example/web:1", "25% max"],
        ),
        ("describe service web", &["Name:                     web\n", "TargetPort:               8080/TCP"]),
        ("! get deploy none", &["Error from server (NotFound): deployments.apps \"none\" not found"]),
        ("! get nonsense", &["the server doesn't have a resource type \"nonsense\""]),
        (
            "! create -f deployment.yaml",
            &["Error from server (AlreadyExists)", "deployments.apps \"web\" already exists"],
        ),
        ("! diff -f deployment-more.yaml", &["-  replicas: 2\n", "+  replicas: 3\n"]),
        ("diff -f deployment.yaml", &[]),
        (
            "apply -f deployment-more.yaml --dry-run=server",
            &["deployment.apps/web configured (server dry run)"],
        ),
        ("get deploy web -o jsonpath={.spec.replicas}", &["2"]),
        ("apply -f deployment-more.yaml", &["deployment.apps/web configured"]),
        ("get deploy web -o jsonpath={.spec.replicas}", &["3"]),
        (
            "delete -f deployment.yaml -f service.yaml",
            &["deployment.apps \"web\" deleted", "service \"web\" deleted"],
        ),
        ("get deploy", &["No resources found in default namespace."]),
    ])
    .await
}

#[tokio::test]
async fn objects_are_edited_patched_and_applied() -> Result<()> {
    const IMAGE: &str = "get deploy web -o jsonpath={.spec.template.spec.containers[*].image}";
    run(&[
        ("create -f deployment.yaml", &["deployment.apps/web created"]),
        ("edit deployment web", &["deployment.apps/web edited"]),
        (IMAGE, &["registry.example/web:edited"]),
        ("scale deployment web --replicas=4", &["deployment.apps/web scaled"]),
        ("! scale deployment web --replicas=5 --current-replicas=3", &["Expected replicas to be 3, was 4"]),
        ("label deployment web tier=front", &["deployment.apps/web labeled"]),
        ("! label deployment web tier=back", &["--overwrite is false"]),
        ("label deployment web tier-", &["deployment.apps/web unlabeled"]),
        ("annotate deployment web owner=us", &["deployment.apps/web annotated"]),
        ("set image deployment/web web=registry.example/web:2", &["deployment.apps/web image updated"]),
        (IMAGE, &["registry.example/web:2"]),
        ("set env deployment/web MODE=fast", &["deployment.apps/web env updated"]),
        ("set resources deployment/web --limits=memory=64Mi", &["deployment.apps/web resource requirements updated"]),
        (
            r#"patch deployment web -p {"spec":{"template":{"spec":{"containers":[{"name":"log","image":"log:1"}]}}}}"#,
            &["deployment.apps/web patched"],
        ),
        (IMAGE, &["log:1 registry.example/web:2"]),
        (r#"patch deploy web --type=merge -p {"spec":{"minReadySeconds":7}}"#, &["deployment.apps/web patched"]),
        (r#"patch deploy web --type=merge -p {"spec":{"minReadySeconds":7}}"#, &["patched (no change)"]),
        (
            r#"patch deploy web --type=json -p [{"op":"remove","path":"/spec/template/spec/containers/0"}]"#,
            &["deployment.apps/web patched"],
        ),
        (IMAGE, &["registry.example/web:2"]),
        (
            r#"! patch deploy web --type=merge -p {"spec":{"replicas":-1}}"#,
            &["The Deployment \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        ),
        ("rollout pause deployment/web", &["deployment.apps/web paused"]),
        ("rollout resume deployment/web", &["deployment.apps/web resumed"]),
        ("rollout restart deployment/web", &["deployment.apps/web restarted"]),
        ("replace -f deployment.yaml", &["deployment.apps/web replaced"]),
        (IMAGE, &["registry.example/web:1"]),
        ("create -f statefulset.yaml", &["statefulset.apps/db created"]),
        (
            r#"patch statefulset db --subresource=status --type=merge -p {"status":{"observedGeneration":1,"replicas":0}}"#,
            &["statefulset.apps/db patched"],
        ),
        ("rollout status statefulset/db --timeout=20s", &["roll out complete"]),
        ("delete deployment,statefulset --all", &["deployment.apps \"web\" deleted", "statefulset.apps \"db\" deleted"]),
    ])
    .await
}

#[tokio::test]
async fn wait_observes_conditions_and_deletion() -> Result<()> {
    run(&[
        ("wait --for=create serviceaccount/default --timeout=20s", &["serviceaccount/default condition met"]),
        ("apply -f pod.yaml", &["pod/web-0 created"]),
        ("wait --for=jsonpath={.status.phase}=Pending pod/web-0 --timeout=20s", &["pod/web-0 condition met"]),
        (
            "! wait --for=condition=Ready pod/web-0 --timeout=1s",
            &["timed out waiting for the condition on pods/web-0"],
        ),
        ("get pods", &["READY", "STATUS", "RESTARTS", "0/1", "Pending"]),
        ("get pods -o wide", &["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]),
        (
            "describe pod web-0",
            &["Service Account:  default", "QoS Class:                   BestEffort", "Pending"],
        ),
        ("delete pod web-0 --wait=false", &["pod \"web-0\" deleted"]),
        ("wait --for=delete pod/web-0 --timeout=20s", &[]),
        ("! wait --for=jsonpath={.status.phase}=Pending pod/web-0", &["pods \"web-0\" not found"]),
    ])
    .await
}

#[tokio::test]
async fn every_create_subcommand_works() -> Result<()> {
    run(&[
        ("create namespace shop", &["namespace/shop created"]),
        ("create configmap settings --from-literal=colour=blue", &["configmap/settings created"]),
        ("get configmap settings", &["DATA", "AGE", "settings   1"]),
        ("describe configmap settings", &["colour:\n----\nblue\n"]),
        ("create secret generic key --from-literal=word=sesame", &["secret/key created"]),
        ("get secret key -o jsonpath={.data.word}", &["c2VzYW1l"]),
        ("describe secret key", &["Type:  Opaque", "word:  6 bytes"]),
        ("create serviceaccount builder", &["serviceaccount/builder created"]),
        ("create token builder --duration=1h", &["eyJ"]),
        ("create role reader --verb=get,list --resource=configmaps", &["role.rbac.authorization.k8s.io/reader created"]),
        (
            "create rolebinding readers --role=reader --serviceaccount=default:builder",
            &["rolebinding.rbac.authorization.k8s.io/readers created"],
        ),
        ("describe role reader", &["configmaps", "[get list]"]),
        ("auth can-i create pods", &["yes"]),
        ("auth can-i list configmaps --as=system:serviceaccount:default:builder", &["yes"]),
        ("! auth can-i list secrets --as=system:serviceaccount:default:builder", &["no"]),
        ("auth can-i --list --as=system:serviceaccount:default:builder", &["configmaps", "[get list]", "/healthz"]),
        ("auth whoami", &["coracle-admin", "system:masters"]),
        (
            "! get secrets --as=system:serviceaccount:default:builder",
            &["Error from server (Forbidden): secrets is forbidden: User \"system:serviceaccount:default:builder\" cannot list"],
        ),
        ("create deployment web --image=registry.example/web:1 --replicas=0", &["deployment.apps/web created"]),
        ("expose deployment web --port=80", &["service/web exposed"]),
        ("create service nodeport door --tcp=80:8080", &["service/door created"]),
        ("create service clusterip inner --tcp=5432", &["service/inner created"]),
        ("create job once --image=registry.example/job:1", &["job.batch/once created"]),
        ("create cronjob nightly --image=registry.example/job:1 --schedule=@daily", &["cronjob.batch/nightly created"]),
        ("create quota small --hard=pods=3", &["resourcequota/small created"]),
        ("create poddisruptionbudget web --selector=app=web --min-available=1", &["poddisruptionbudget.policy/web created"]),
        ("create priorityclass urgent --value=1000", &["priorityclass.scheduling.k8s.io/urgent created"]),
        ("create ingress door --rule=shop.example/*=web:80", &["ingress.networking.k8s.io/door created"]),
        ("get svc,jobs,cronjobs,quota,pdb,ingress", &["80:3", "5432/TCP", "job.batch/once", "@daily", "shop.example"]),
        ("create configmap late -n none --from-literal=a=b --dry-run=client -o name", &["configmap/late"]),
        ("! create configmap late -n none", &["namespaces \"none\" not found"]),
    ])
    .await
}

#[tokio::test]
async fn cluster_information_is_shown() -> Result<()> {
    run(&[
        ("version", &["Client Version:", "Server Version: v1.36"]),
        ("cluster-info", &["Kubernetes control plane", "is running at", "https://127.0.0.1:"]),
        ("get --raw /readyz", &["ok"]),
        ("config current-context", &["coracle"]),
        ("api-versions", &["apps/v1\n", "batch/v1\n", "storage.k8s.io/v1\n"]),
        (
            "api-resources",
            &["SHORTNAMES", "deployments", "deploy", "apps/v1", "persistentvolumeclaims", "pvc"],
        ),
        ("api-resources --namespaced=false -o name", &["nodes\n", "persistentvolumes\n"]),
        ("api-resources --api-group=apps --verbs=watch -o wide", &["statefulsets", "CATEGORIES", "all"]),
        ("explain pods", &["KIND:       Pod\nVERSION:    v1\n", "FIELDS:\n", "spec\t<PodSpec>"]),
        ("explain deployment.spec.replicas", &["GROUP:      apps\n", "FIELD: replicas <integer>"]),
        ("! explain deployment.spec.none", &["field \"none\" does not exist"]),
        ("apply -f node.yaml", &["node/edge-0 created"]),
        ("cordon edge-0", &["node/edge-0 cordoned"]),
        ("get node edge-0", &["STATUS", "ROLES", "VERSION", "SchedulingDisabled"]),
        ("uncordon edge-0", &["node/edge-0 uncordoned"]),
        ("taint nodes edge-0 reserved=shop:NoSchedule", &["node/edge-0 tainted"]),
        (
            "describe node edge-0",
            &["Name:               edge-0\n", "reserved=shop:NoSchedule", "Unschedulable:      false"],
        ),
        ("taint nodes -l zone=edge reserved-", &["node/edge-0 untainted"]),
        ("drain edge-0", &["node/edge-0 cordoned", "node/edge-0 drained"]),
        ("delete node edge-0", &["node \"edge-0\" deleted"]),
        ("get storageclass", &["standard (default)", "PROVISIONER", "RECLAIMPOLICY"]),
    ])
    .await
}

/// Covers server-side apply, the migration from client-side apply, and replacing by force.
#[tokio::test]
async fn objects_are_applied_by_the_server() -> Result<()> {
    const MANAGERS: &str =
        "get deploy web --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}";
    run_scenario(
        cluster().flag("--controllers", "garbage-collector-controller").flag("--nodes", "0"),
        &[
            ("apply --server-side -f settings.yaml", &["configmap/settings serverside-applied"]),
            (
                "get configmap settings --show-managed-fields -o yaml",
                &["manager: kubectl\n", "operation: Apply\n"],
            ),
            (
                r#"patch configmap settings --field-manager=other -p {"data":{"colour":"green"}}"#,
                &["configmap/settings patched"],
            ),
            (
                "! apply --server-side -f settings.yaml",
                &["Apply failed with 1 conflict: conflict with \"other\" using v1: .data.colour"],
            ),
            (
                "! diff --server-side --force-conflicts -f settings.yaml",
                &["-  colour: green\n", "+  colour: blue\n"],
            ),
            (
                "apply --server-side --force-conflicts -f settings.yaml",
                &["configmap/settings serverside-applied"],
            ),
            (
                "apply --server-side --dry-run=server -f deployment.yaml",
                &["deployment.apps/web serverside-applied (server dry run)"],
            ),
            ("apply -f deployment.yaml", &["deployment.apps/web created"]),
            ("apply --server-side -f deployment-more.yaml", &["deployment.apps/web serverside-applied"]),
            (MANAGERS, &["kubectl-last-applied kubectl"]),
            ("apply view-last-applied deployment web", &["replicas: 3\n"]),
            ("apply set-last-applied -f deployment.yaml", &["deployment.apps/web configured"]),
            ("apply view-last-applied deployment web", &["replicas: 2\n"]),
            (
                "replace --force -f deployment.yaml",
                &["deployment.apps \"web\" deleted", "deployment.apps/web replaced"],
            ),
            (
                r#"patch deployment web --subresource=scale --type=merge -p {"spec":{"replicas":4}}"#,
                &["scale.autoscaling/web patched"],
            ),
            ("get deployment web --subresource=status -o jsonpath={.spec.replicas}", &["4"]),
            ("create -f settings.yaml --dry-run=client -o name", &["configmap/settings"]),
            ("delete deployment web --cascade=foreground", &["deployment.apps \"web\" deleted"]),
            ("! wait --for=create configmap/none --timeout=1s", &["timed out waiting for the condition"]),
            ("events --for configmap/settings", &["No events found in default namespace."]),
        ],
    )
    .await
}

/// Checks the information that the design promises about a claim in use: its state, the pods that
/// use it, and how to proceed.
#[tokio::test]
async fn a_claim_in_use_is_shown_as_terminating() -> Result<()> {
    run_scenario(
        cluster().with_service_account(),
        &[
            ("wait --for=create serviceaccount/default --timeout=20s", &[]),
            (
                "apply -f claim.yaml",
                &[
                    "persistentvolumeclaim/data created",
                    "persistentvolumeclaim/spare created",
                    "pod/user created",
                ],
            ),
            ("wait --for=condition=Ready pod/user --timeout=30s", &[]),
            ("wait --for=jsonpath={.status.phase}=Bound pvc/spare --timeout=20s", &[]),
            (
                "get pvc data",
                &["STATUS", "VOLUME", "CAPACITY", "STORAGECLASS", "Bound", "1Gi", "RWO", "standard"],
            ),
            (
                "describe pvc data",
                &["Status:        Bound", "kubernetes.io/pvc-protection", "Used By:       user"],
            ),
            ("~ describe pod user", &["ClaimName:  data", "SuccessfulAttachVolume"]),
            ("get volumeattachments", &["ATTACHER", "ATTACHED", "coracle.csi", "node-0", "true"]),
            ("delete pvc data spare --wait=false", &["\"data\" deleted", "\"spare\" deleted"]),
            ("wait --for=delete pvc/spare --timeout=20s", &[]),
            ("get pvc", &["Terminating"]),
            ("describe pvc data", &["Status:        Terminating (lasts ", "Used By:       user"]),
            ("get pods", &["user   1/1     Running"]),
            (
                "describe pv",
                &[
                    "Status:          Bound",
                    "Claim:           default/data",
                    "Driver:            coracle.csi",
                ],
            ),
            ("delete pod user --grace-period=1", &["\"user\" deleted"]),
            ("wait --for=delete pvc/data --timeout=20s", &[]),
            ("wait --for=delete pv --all --timeout=20s", &[]),
            ("get pvc,pv", &["No resources found"]),
        ],
    )
    .await
}

#[tokio::test]
async fn stateful_sets_are_rolled_out_scaled_and_deleted() -> Result<()> {
    const IMAGES: &str = "get pods -l app=db -o jsonpath={.items[*].spec.containers[0].image}";
    const STATUS: &str = "rollout status statefulset/db --timeout=30s";
    const SCALE: &str = "get statefulset db --subresource=scale -o jsonpath={.spec.replicas}/{.status.replicas}/{.status.selector}";
    run_scenario(
        cluster().with_service_account(),
        &[
            ("apply -f statefulset.yaml", &["statefulset.apps/db created"]),
            ("scale statefulset db --replicas=3", &["statefulset.apps/db scaled"]),
            (STATUS, &["partitioned roll out complete: 3 new pods have been updated..."]),
            ("get statefulset db", &["NAME   READY   AGE\ndb     3/3"]),
            (
                "describe statefulset db",
                &["3 desired | 3 total", "3 Running / 0 Waiting / 0 Succeeded", "SuccessfulCreate"],
            ),
            // Updates, and their history.
            ("set image statefulset/db db=registry.example/db:2", &["statefulset.apps/db image updated"]),
            (STATUS, &["partitioned roll out complete: 3 new pods"]),
            (IMAGES, &["registry.example/db:2 registry.example/db:2 registry.example/db:2"]),
            ("rollout history statefulset/db", &["REVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n"]),
            ("rollout history statefulset/db --revision=1", &["with revision #1", "registry.example/db:1"]),
            ("rollout undo statefulset/db", &["statefulset.apps/db rolled back"]),
            (STATUS, &["partitioned roll out complete: 3 new pods"]),
            (IMAGES, &["registry.example/db:1 registry.example/db:1 registry.example/db:1"]),
            ("rollout history statefulset/db", &["\n2         <none>\n3         <none>\n"]),
            ("rollout undo statefulset/db --to-revision=2", &["statefulset.apps/db rolled back"]),
            (STATUS, &["partitioned roll out complete: 3 new pods"]),
            (IMAGES, &["registry.example/db:2 registry.example/db:2 registry.example/db:2"]),
            ("rollout undo statefulset/db --to-revision=4", &["skipped rollback", "already matches revision 4"]),
            ("! rollout undo statefulset/db --to-revision=9", &["unable to find specified revision 9"]),
            ("rollout restart statefulset/db", &["statefulset.apps/db restarted"]),
            (STATUS, &["partitioned roll out complete: 3 new pods"]),
            ("get pods -l app=db -o yaml", &["kubectl.kubernetes.io/restartedAt"]),
            ("rollout history statefulset/db", &["\n3         <none>\n4         <none>\n5         <none>\n"]),
            ("! rollout pause statefulset/db", &["pausing is not supported"]),
            // A partition.
            (
                r#"patch statefulset db -p {"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}"#,
                &["statefulset.apps/db patched"],
            ),
            ("set image statefulset/db db=registry.example/db:3", &["image updated"]),
            (STATUS, &["partitioned roll out complete: 1 new pods have been updated..."]),
            (IMAGES, &["registry.example/db:2 registry.example/db:2 registry.example/db:3"]),
            (
                r#"patch statefulset db -p {"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}"#,
                &["statefulset.apps/db patched"],
            ),
            (
                "! rollout status statefulset/db",
                &["rollout status is only available for RollingUpdate strategy type"],
            ),
            // By hand, and as autoscalers do.
            (SCALE, &["3/3/app=db"]),
            ("! scale statefulset db --replicas=5 --current-replicas=4", &["Expected replicas to be 4, was 3"]),
            ("scale statefulset db --replicas=2 --current-replicas=3", &["statefulset.apps/db scaled"]),
            (
                r#"patch statefulset db --subresource=scale --type=merge -p {"spec":{"replicas":1}}"#,
                &["scale.autoscaling/db patched"],
            ),
            ("wait --for=delete pod/db-1 pod/db-2 --timeout=30s", &[]),
            ("wait --for=jsonpath={.status.replicas}=1 statefulset/db --timeout=30s", &[]),
            (SCALE, &["1/1/app=db"]),
            ("autoscale statefulset db --min=1 --max=3", &["horizontalpodautoscaler.autoscaling/db autoscaled"]),
            ("get hpa db", &["StatefulSet/db"]),
            // Deleted without its pods, and with them.
            ("delete statefulset db --cascade=orphan", &["statefulset.apps \"db\" deleted"]),
            ("get pods -l app=db -o name", &["pod/db-0\n"]),
            ("apply -f statefulset.yaml", &["statefulset.apps/db created"]),
            ("wait --for=jsonpath={.status.observedGeneration}=1 statefulset/db --timeout=30s", &[]),
            ("delete statefulset db", &["statefulset.apps \"db\" deleted"]),
            ("wait --for=delete pod/db-0 --timeout=30s", &[]),
        ],
    )
    .await
}

#[tokio::test]
async fn deployments_are_rolled_out_scaled_and_deleted() -> Result<()> {
    const IMAGES: &str = "get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}";
    const STATUS: &str = "rollout status deployment/web --timeout=30s";
    const DONE: &[&str] = &["deployment \"web\" successfully rolled out"];
    run_scenario(
        cluster().with_service_account(),
        &[
            ("create deployment web --image=web:1 --replicas=2", &["deployment.apps/web created"]),
            (STATUS, DONE),
            ("get deployment web", &["NAME   READY   UP-TO-DATE   AVAILABLE   AGE\nweb    2/2     2            2"]),
            ("get replicasets", &["DESIRED   CURRENT   READY   AGE\nweb-"]),
            // Updates, and their history.
            ("set image deployment/web web=web:2", &["deployment.apps/web image updated"]),
            (STATUS, DONE),
            ("wait --for=jsonpath={.status.terminatingReplicas}=0 deployment/web --timeout=40s", &[]),
            (IMAGES, &["web:2 web:2"]),
            ("rollout history deployment/web", &["REVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n"]),
            ("rollout history deployment/web --revision=1", &["with revision #1", "web:1", "pod-template-hash="]),
            ("rollout undo deployment/web", &["deployment.apps/web rolled back"]),
            (STATUS, DONE),
            ("rollout history deployment/web", &["REVISION  CHANGE-CAUSE\n2         <none>\n3         <none>\n"]),
            ("rollout undo deployment/web --to-revision=2", &["deployment.apps/web rolled back"]),
            (STATUS, DONE),
            ("! rollout undo deployment/web --to-revision=9", &["unable to find specified revision 9"]),
            // A pause.
            ("rollout pause deployment/web", &["deployment.apps/web paused"]),
            ("set image deployment/web web=web:3", &["deployment.apps/web image updated"]),
            ("wait --for=jsonpath={.status.conditions[?(@.type=='Progressing')].reason}=DeploymentPaused deployment/web --timeout=20s", &[]),
            ("rollout history deployment/web", &["\n3         <none>\n4         <none>\n"]),
            ("! rollout undo deployment/web", &["you cannot rollback a paused deployment"]),
            ("rollout resume deployment/web", &["deployment.apps/web resumed"]),
            (STATUS, DONE),
            ("get deployment web -o wide", &["web:3"]),
            ("rollout restart deployment/web", &["deployment.apps/web restarted"]),
            (STATUS, DONE),
            ("get pods -l app=web -o yaml", &["kubectl.kubernetes.io/restartedAt"]),
            // Sizes.
            ("scale deployment web --replicas=4", &["deployment.apps/web scaled"]),
            (STATUS, DONE),
            ("get deployment web", &["4/4"]),
            ("expose deployment web --port=80", &["service/web exposed"]),
            (
                "describe deployment web",
                &[
                    "4 desired | 4 updated | 4 total | 4 available | 0 unavailable",
                    "Available      True    MinimumReplicasAvailable",
                    "Progressing    True    NewReplicaSetAvailable",
                    "ScalingReplicaSet",
                    "Scaled up replica set web-",
                ],
            ),
            // A rollout that gets nowhere.
            (
                r#"patch deployment web -p {"spec":{"progressDeadlineSeconds":1,"template":{"metadata":{"annotations":{"sim.coracle.dev/never-ready":"true"}}}}}"#,
                &["deployment.apps/web patched"],
            ),
            ("! rollout status deployment/web --timeout=30s", &["exceeded its progress deadline"]),
            ("rollout undo deployment/web", &["deployment.apps/web rolled back"]),
            ("wait --for=condition=Progressing deployment/web --timeout=30s", &["condition met"]),
            // Deleted without its ReplicaSets, and with them.
            ("delete deployment web --cascade=orphan", &["deployment.apps \"web\" deleted"]),
            ("get replicasets -l app=web -o name", &["replicaset.apps/web-"]),
            ("delete replicasets -l app=web", &["deleted"]),
            ("wait --for=delete pod -l app=web --timeout=50s", &[]),
        ],
    )
    .await
}

#[tokio::test]
async fn a_daemon_set_is_rolled_out_and_rolled_back_on_all_nodes() -> Result<()> {
    const IMAGES: &str = "get pods -l app=agent -o jsonpath={.items[*].spec.containers[0].image}";
    const STATUS: &str = "rollout status daemonset/agent --timeout=30s";
    run_scenario(
        cluster().flag("--nodes", "3"),
        &[
            ("wait --for=create node/node-0 node/node-1 node/node-2 --timeout=30s", &[]),
            ("apply -f daemonset.yaml", &["daemonset.apps/agent created"]),
            (STATUS, &["daemon set \"agent\" successfully rolled out"]),
            ("get daemonset agent", &["DESIRED   CURRENT   READY", "agent   3         3         3"]),
            ("get pods -l app=agent -o wide", &["node-0", "node-1", "node-2"]),
            ("~ describe daemonset agent", &["Desired Number of Nodes Scheduled: 3", "SuccessfulCreate"]),
            (
                "set image daemonset/agent agent=registry.example/agent:2",
                &["daemonset.apps/agent image updated"],
            ),
            (STATUS, &["daemon set \"agent\" successfully rolled out"]),
            (IMAGES, &["registry.example/agent:2 registry.example/agent:2 registry.example/agent:2"]),
            (
                "rollout history daemonset/agent",
                &["REVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n"],
            ),
            ("rollout undo daemonset/agent", &["daemonset.apps/agent rolled back"]),
            (STATUS, &["daemon set \"agent\" successfully rolled out"]),
            (IMAGES, &["registry.example/agent:1 registry.example/agent:1 registry.example/agent:1"]),
            ("rollout history daemonset/agent", &["\n2         <none>\n3         <none>\n"]),
            ("delete daemonset agent", &["daemonset.apps \"agent\" deleted"]),
            ("wait --for=delete pod -l app=agent --timeout=30s", &[]),
        ],
    )
    .await
}

#[tokio::test]
async fn an_exposed_pod_is_an_endpoint() -> Result<()> {
    const SLICE: &str = "get endpointslices -l kubernetes.io/service-name=web -o jsonpath={.items[*].endpoints[*].targetRef.name}";
    run_scenario(
        cluster().with_service_account(),
        &[
            ("run web --image=registry.example/web:1 --labels=app=web --port=80", &["pod/web created"]),
            ("expose pod web --port=80", &["service/web exposed"]),
            ("wait --for=condition=Ready pod/web --timeout=30s", &["pod/web condition met"]),
            ("wait --for=create endpoints/web --timeout=30s", &[]),
            (
                "wait --for=jsonpath={.subsets[0].addresses[0].targetRef.name}=web endpoints/web --timeout=30s",
                &["condition met"],
            ),
            (
                "wait --for=jsonpath={.endpoints[0].conditions.ready}=true endpointslice -l kubernetes.io/service-name=web --timeout=30s",
                &["condition met"],
            ),
            (SLICE, &["web"]),
            ("get endpointslices", &["ADDRESSTYPE", "IPv4"]),
            ("describe service web", &["Endpoints:", ":80"]),
            ("delete pod web --now", &["pod \"web\" deleted"]),
            ("delete service web", &["service \"web\" deleted"]),
            ("wait --for=delete endpoints/web --timeout=30s", &[]),
            ("wait --for=delete endpointslice -l kubernetes.io/service-name=web --timeout=30s", &[]),
        ],
    )
    .await
}

#[tokio::test]
async fn load_balancers_have_addresses() -> Result<()> {
    const IP: &str = "jsonpath={.status.loadBalancer.ingress[0].ip}";
    let wait = |object: &str, ip: &str| format!("wait --for={IP}={ip} {object} --timeout=30s");
    let lines = [
        wait("service/one", "203.0.113.1"),
        wait("service/two", "203.0.113.2"),
        wait("ingress/web", "203.0.113.3"),
        wait("service/three", "203.0.113.1"),
    ]
    .map(|line| &*line.leak());
    run_scenario(
        cluster().flag("--load-balancer-addresses", "203.0.113.0/30"),
        &[
            ("create service loadbalancer one --tcp=80", &["created"]),
            (lines[0], &["condition met"]),
            ("create service loadbalancer two --tcp=80", &["created"]),
            (lines[1], &["condition met"]),
            ("create ingress web --rule=example.com/=one:80", &["created"]),
            (lines[2], &["condition met"]),
            ("get services one", &["LoadBalancer", "203.0.113.1"]),
            // The block is exhausted, until a Service is deleted or changes its type.
            ("create service loadbalancer three --tcp=80", &["created"]),
            ("wait --for=create event --field-selector=reason=SyncLoadBalancerFailed --timeout=30s", &[]),
            ("get service three", &["<pending>"]),
            ("patch service one -p {\"spec\":{\"type\":\"ClusterIP\"}}", &["patched"]),
            (lines[3], &["condition met"]),
            ("get service one -o jsonpath=[{.status.loadBalancer}]", &["[{}]"]),
        ],
    )
    .await
}

#[tokio::test]
async fn jobs_run_to_their_end() -> Result<()> {
    run_scenario(
        cluster().with_service_account(),
        &[
            ("apply -f job.yaml", &["job.batch/report created"]),
            ("wait --for=condition=complete job/report --timeout=30s", &["job.batch/report condition met"]),
            ("get job report", &["report   Complete   3/3"]),
            (
                "~ describe job report",
                &["0 Active (0 Ready) / 3 Succeeded / 0 Failed", "SuccessfulCreate", "Job completed"],
            ),
            ("logs job/report", &["the report\n"]),
            ("logs -f -l job-name=report --prefix", &["[pod/report-", "/report] the report\n"]),
            ("! logs job/report --previous", &["previous terminated container \"report\" in pod"]),
            ("create job hello --image=busybox -- echo hi there", &["job.batch/hello created"]),
            ("wait --for=condition=complete job/hello --timeout=30s", &["condition met"]),
            ("logs job/hello", &["hi there\n"]),
            // A CronJob, and a Job of it by hand. Pods of a namespace may run on.
            ("annotate namespace default sim.coracle.dev/exit-after=never", &["annotated"]),
            (
                "create cronjob nightly --image=registry.example/job:1 --schedule=@yearly",
                &["cronjob.batch/nightly created"],
            ),
            ("create job now --from=cronjob/nightly", &["job.batch/now created"]),
            ("get job now -o yaml", &["cronjob.kubernetes.io/instantiate: manual", "kind: CronJob"]),
            ("wait --for=jsonpath={.status.ready}=1 job/now --timeout=30s", &["condition met"]),
            ("delete cronjob nightly", &["cronjob.batch \"nightly\" deleted"]),
            ("wait --for=delete job/now --timeout=30s", &[]),
            // A Job that is suspended and resumed, and deleted with its pods.
            ("create job once --image=registry.example/job:1", &["job.batch/once created"]),
            ("wait --for=jsonpath={.status.ready}=1 job/once --timeout=30s", &["condition met"]),
            ("patch job once -p {\"spec\":{\"suspend\":true}}", &["job.batch/once patched"]),
            ("wait --for=condition=suspended job/once --timeout=30s", &["condition met"]),
            ("patch job once -p {\"spec\":{\"suspend\":false}}", &["job.batch/once patched"]),
            ("wait --for=jsonpath={.status.ready}=1 job/once --timeout=30s", &["condition met"]),
            ("delete job once", &["job.batch \"once\" deleted"]),
            ("wait --for=delete pod -l job-name=once --timeout=30s", &[]),
            // A command that declares its behavior is simulated; others are refused with a hint.
            ("run idle --image=registry.example/idle:1", &["pod/idle created"]),
            ("wait --for=condition=Ready pod/idle --timeout=30s", &["condition met"]),
            ("debug idle --image=busybox --container=look -- echo looked", &[]),
            (
                "wait --for=jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}=0 pod/idle --timeout=30s",
                &["condition met"],
            ),
            ("logs idle -c look", &["looked\n"]),
            ("exec idle -- echo hello", &["hello\n"]),
            ("! exec idle -- nginx -t", &["exec of \"nginx -t\" is not simulated", "sim.coracle.dev/exec"]),
            ("! port-forward pod/idle 0:80", &["port-forward to pod idle is not simulated", "sim.coracle.dev/forward"]),
        ],
    )
    .await
}

/// Checks that a disruption budget blocks a drain until it is deleted.
#[tokio::test]
async fn a_disruption_budget_blocks_a_drain() -> Result<()> {
    run_scenario(
        cluster().with_service_account(),
        &[
            ("apply -f budget.yaml", &["poddisruptionbudget.policy/web created"]),
            ("wait --for=jsonpath={.status.observedGeneration}=1 pdb/web --timeout=20s", &[]),
            ("run web-0 --image=web:1 --labels=app=web", &["pod/web-0 created"]),
            ("run web-1 --image=web:1 --labels=app=web", &["pod/web-1 created"]),
            ("wait --for=condition=Ready pod -l app=web --timeout=30s", &["pod/web-0 condition met"]),
            ("wait --for=jsonpath={.status.disruptionsAllowed}=1 pdb/web --timeout=20s", &[]),
            ("get pdb web", &["MIN AVAILABLE", "ALLOWED DISRUPTIONS", "N/A"]),
            (
                "! drain node-0 --force --timeout=4s",
                &[
                    "node/node-0 cordoned",
                    "declare no controller",
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                ],
            ),
            ("wait --for=jsonpath={.status.expectedPods}=1 pdb/web --timeout=20s", &[]),
            (
                "~ describe pdb web",
                &["Allowed disruptions:  0", "Current:              1", "No matching pods found"],
            ),
            ("delete pdb web", &["deleted"]),
            ("drain node-0 --force", &["evicting pod default/web-", "node/node-0 drained"]),
            ("get pods", &["No resources found in default namespace."]),
        ],
    )
    .await
}

/// Checks that `get --watch` prints each change as it happens.
#[tokio::test]
async fn get_watch_prints_each_change() -> Result<()> {
    let Some(kubectl) = kubectl() else { return Ok(()) };
    let cluster = cluster().flag("--controllers", "").start().await?;
    let mut watch =
        command(&cluster, kubectl, "get configmaps -l scenario --watch --output-watch-events --no-headers");
    let mut watch = watch.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().context("its output")?).lines();
    for (line, want) in [
        ("create -f settings.yaml", "ADDED settings 1"),
        (r#"patch configmap settings -p {"data":{"size":"small"}}"#, "MODIFIED settings 2"),
        ("delete configmap settings", "DELETED settings 2"),
    ] {
        let status = command(&cluster, kubectl, line).stdout(Stdio::null()).status().await?;
        ensure!(status.success(), "kubectl {line}: {status}");
        let seen = timeout(DEADLINE, lines.next_line()).await.with_context(|| format!("no {want}"))??;
        let seen: Vec<_> = seen.as_deref().context("the watch ended")?.split_whitespace().take(3).collect();
        assert_eq!(seen.join(" "), want);
    }
    watch.kill().await?;
    Ok(())
}
