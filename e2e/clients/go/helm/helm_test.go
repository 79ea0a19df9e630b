// Package helm runs the real Helm, built from its published module, against Coracle.
package helm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"coracle.dev/clients/go/coracletest"
	"coracle.dev/clients/go/coracletest/restconfig"
)

const deadline = time.Minute

// helm runs commands as a user whose home is a directory of the test.
type helm struct {
	t          *testing.T
	program    string
	home       string
	kubeconfig string
}

// build builds Helm by the version in go.mod.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "helm")
	command := exec.Command("go", "build", "-o", program, "helm.sh/helm/v3/cmd/helm")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("helm cannot be built: %v\n%s", err, output)
	}
	return program
}

func (h *helm) try(arguments ...string) (string, error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), deadline)
	defer cancel()
	command := exec.CommandContext(ctx, h.program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig, "HOME="+h.home)
	output, err := command.CombinedOutput()
	return string(output), err
}

func (h *helm) run(arguments ...string) string {
	h.t.Helper()
	output, err := h.try(arguments...)
	if err != nil {
		h.t.Fatalf("helm %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return output
}

// release is what `helm status -o json` prints of it.
type release struct {
	Version int `json:"version"`
	Info    struct {
		Status string `json:"status"`
	} `json:"info"`
}

func (h *helm) want(version int, status string) {
	h.t.Helper()
	var got release
	if err := json.Unmarshal([]byte(h.run("status", "shop", "-o", "json")), &got); err != nil {
		h.t.Fatal(err)
	}
	if got.Version != version || got.Info.Status != status {
		h.t.Errorf("revision %d is %s, not revision %d %s", got.Version, got.Info.Status, version, status)
	}
}

func TestAChartIsInstalledUpgradedRolledBackAndUninstalled(t *testing.T) {
	controlPlane := coracletest.Start(t)
	config, err := restconfig.Of(controlPlane)
	if err != nil {
		t.Fatal(err)
	}
	h := &helm{t: t, program: build(t), home: t.TempDir(), kubeconfig: controlPlane.KubeconfigFile}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	web := func() *appsv1.Deployment {
		t.Helper()
		deployment, err := clients.AppsV1().Deployments("default").Get(ctx, "shop-web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return deployment
	}
	ready := func(replicas int32, image string) {
		t.Helper()
		set, err := clients.AppsV1().StatefulSets("default").Get(ctx, "shop-db", metav1.GetOptions{})
		if err != nil || set.Status.ReadyReplicas != replicas {
			t.Errorf("the StatefulSet: %+v, %v", set.Status, err)
		}
		deployment := web()
		if deployment.Status.AvailableReplicas != replicas || deployment.Spec.Template.Spec.Containers[0].Image != image {
			t.Errorf("the Deployment: %+v", deployment)
		}
	}

	if output := h.run("install", "shop", "chart", "--wait", "--timeout=50s"); !strings.Contains(output, "STATUS: deployed") {
		t.Errorf("install: %s", output)
	}
	h.want(1, "deployed")
	ready(2, "web:1")
	if output, err := h.try("install", "shop", "chart"); err == nil || !strings.Contains(output, "cannot re-use a name") {
		t.Errorf("a second installation: %v\n%s", err, output)
	}

	h.run("upgrade", "shop", "chart", "--set=replicas=3,image=web:2", "--wait", "--timeout=50s")
	h.want(2, "deployed")
	ready(3, "web:2")
	// Changes by others stay unless the chart sets the same fields.
	deployment := web()
	deployment.Spec.Template.Annotations = map[string]string{"by": "hand"}
	if _, err := clients.AppsV1().Deployments("default").Update(ctx, deployment, metav1.UpdateOptions{FieldManager: "hand"}); err != nil {
		t.Fatal(err)
	}

	h.run("rollback", "shop", "1", "--wait", "--timeout=50s")
	h.want(3, "deployed")
	ready(2, "web:1")
	if web().Spec.Template.Annotations["by"] != "hand" {
		t.Error("the annotation is gone")
	}
	if history := h.run("history", "shop"); strings.Count(history, "superseded") != 2 {
		t.Errorf("history: %s", history)
	}

	// An invalid value fails the release with a reason.
	if output, err := h.try("upgrade", "shop", "chart", "--set=replicas=-1"); err == nil || !strings.Contains(output, "must be greater than or equal to 0") {
		t.Errorf("an invalid upgrade: %v\n%s", err, output)
	}
	h.want(4, "failed")
	h.run("upgrade", "shop", "chart", "--wait", "--timeout=50s")

	h.run("uninstall", "shop", "--wait", "--timeout=50s")
	if output, err := h.try("status", "shop"); err == nil || !strings.Contains(output, "not found") {
		t.Errorf("the status of nothing: %v\n%s", err, output)
	}
	if _, err := clients.AppsV1().StatefulSets("default").Get(ctx, "shop-db", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the StatefulSet: %v", err)
	}
	secrets, err := clients.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil || len(secrets.Items) != 0 {
		t.Errorf("%d secrets, %v", len(secrets.Items), err)
	}
	claims, err := clients.CoreV1().PersistentVolumeClaims("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(claims.Items) == 0 {
		t.Errorf("the claims are the user's: %v", fmt.Sprint(claims.Items, err))
	}
}
