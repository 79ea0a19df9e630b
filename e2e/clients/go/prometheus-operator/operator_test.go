// Package prometheusoperator runs the real prometheus-operator, built from its published module, against Coracle: it makes
// StatefulSets of custom resources, as its own ServiceAccount and with the rights of its own manifests.
package prometheusoperator

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"coracle.dev/clients/go/coracletest/restconfig"
	"coracle.dev/e2e/clients/go/processes"
)

const (
	module = "github.com/prometheus-operator/prometheus-operator"
	group  = "monitoring.coreos.com"
)

const manifests = `
apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: monitoring}
---
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: main, namespace: monitoring}
spec:
  replicas: 2
  serviceAccountName: prometheus
  serviceMonitorSelector: {}
  storage:
    volumeClaimTemplate:
      spec:
        resources: {requests: {storage: 1Gi}}
---
apiVersion: monitoring.coreos.com/v1
kind: Alertmanager
metadata: {name: main, namespace: monitoring}
spec: {replicas: 3}
`

const monitor = `
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: shop, namespace: monitoring}
spec:
  selector: {matchLabels: {app: shop}}
  endpoints: [{port: http, interval: 15s}]
`

func TestStatefulSetsAreMadeOfCustomResourcesAndDeletedWithThem(t *testing.T) {
	program := processes.Build(t, module+"/cmd/operator")
	examples := filepath.Join(processes.ModuleDirectory(t, module), "example")
	config := restconfig.Start(t)
	objects := processes.NewObjects(t, config)

	definitions := processes.ReadFiles(t, filepath.Join(examples, "prometheus-operator-crd", "*.yaml"))
	objects.Create(t, definitions...)
	for _, definition := range definitions {
		all := objects.In("", "apiextensions.k8s.io", "v1", "customresourcedefinitions")
		processes.WaitForConditions(t, all, definition.GetName(), "Established")
	}
	for _, part := range []string{"service-account", "cluster-role", "cluster-role-binding"} {
		file := "prometheus-operator-" + part + ".yaml"
		objects.Create(t, processes.ReadFiles(t, filepath.Join(examples, "rbac", "prometheus-operator", file))...)
	}
	kubeconfig := processes.KubeconfigOf(t, config, "default", "prometheus-operator")
	address := fmt.Sprintf("127.0.0.1:%d", processes.FreePort(t))
	processes.Start(t, "prometheus-operator", []string{"KUBECONFIG=" + kubeconfig}, program, "-web.listen-address="+address)

	objects.Create(t, processes.Read(t, []byte(manifests))...)
	prometheuses := objects.In("monitoring", group, "v1", "prometheuses")
	found := processes.WaitForConditions(t, prometheuses, "main", "Available", "Reconciled")
	if available, _, _ := unstructured.NestedInt64(found.Object, "status", "availableReplicas"); available != 2 {
		t.Errorf("%d replicas are available: %v", available, found.Object["status"])
	}
	alertmanagers := objects.In("monitoring", group, "v1", "alertmanagers")
	processes.WaitForConditions(t, alertmanagers, "main", "Available", "Reconciled")
	sets := objects.In("monitoring", "apps", "v1", "statefulsets")
	ready := func(name string, replicas int64) {
		t.Helper()
		processes.Eventually(t, fmt.Sprintf("%s has %d ready replicas", name, replicas), func(ctx context.Context) (bool, string) {
			set, err := sets.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			count, _, _ := unstructured.NestedInt64(set.Object, "status", "readyReplicas")
			return count == replicas, fmt.Sprint(set.Object["status"])
		})
	}
	ready("prometheus-main", 2)
	ready("alertmanager-main", 3)

	// The operator makes a configuration of what the monitors select.
	objects.Create(t, processes.Read(t, []byte(monitor))...)
	secrets := objects.In("monitoring", "", "v1", "secrets")
	processes.Eventually(t, "the configuration has the monitor", func(ctx context.Context) (bool, string) {
		secret, err := secrets.Get(ctx, "prometheus-main", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		configuration, err := unzip(secret)
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(configuration, "serviceMonitor/monitoring/shop/0"), configuration
	})

	// As kubectl scale does, by the scale subresource of the custom resource, which counts shards: each is a StatefulSet.
	scale := []byte(`{"spec":{"replicas":2}}`)
	if _, err := prometheuses.Patch(t.Context(), "main", types.MergePatchType, scale, metav1.PatchOptions{}, "scale"); err != nil {
		t.Fatal(err)
	}
	ready("prometheus-main-shard-1", 2)
	// A StatefulSet that somebody deletes comes back.
	if err := sets.Delete(t.Context(), "alertmanager-main", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ready("alertmanager-main", 3)

	// The definition's schema rejects invalid values.
	wrong := []byte(`{"spec":{"logLevel":"loud"}}`)
	_, err := prometheuses.Patch(t.Context(), "main", types.MergePatchType, wrong, metav1.PatchOptions{})
	if err == nil || !strings.Contains(err.Error(), `spec.logLevel: Unsupported value: "loud"`) {
		t.Errorf("an invalid Prometheus: %v", err)
	}

	if err := prometheuses.Delete(t.Context(), "main", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	empty(t, objects, "monitoring", "apps", "statefulsets", "prometheus-main")
	empty(t, objects, "monitoring", "", "pods", "prometheus-main-")
	objects.Delete(t, definitions...)
	empty(t, objects, "monitoring", "apps", "statefulsets", "")
	empty(t, objects, "monitoring", "", "pods", "")
	if err := objects.In("", "", "v1", "namespaces").Delete(t.Context(), "monitoring", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	empty(t, objects, "", "", "namespaces", "monitoring")
}

// empty waits until no object of a resource is left whose name begins with a prefix.
func empty(t *testing.T, objects *processes.Objects, namespace, group, resource, prefix string) {
	t.Helper()
	all := objects.In(namespace, group, "v1", resource)
	processes.Eventually(t, fmt.Sprintf("no %s %s is left", resource, prefix), func(ctx context.Context) (bool, string) {
		list, err := all.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, item := range list.Items {
			if strings.HasPrefix(item.GetName(), prefix) {
				return false, fmt.Sprint(item.GetName(), item.GetFinalizers(), item.GetOwnerReferences())
			}
		}
		return true, ""
	})
}

// unzip returns the configuration in a Secret of the operator.
func unzip(secret *unstructured.Unstructured) (string, error) {
	text, _, err := unstructured.NestedString(secret.Object, "data", "prometheus.yaml.gz")
	if err != nil {
		return "", err
	}
	zipped, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", err
	}
	reader, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return "", err
	}
	plain, err := io.ReadAll(reader)
	return string(plain), err
}
