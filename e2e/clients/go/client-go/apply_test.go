package clientgo

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1 "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
)

func deploymentApply(ns string) *appsv1.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "web"}
	return appsv1.Deployment("web", ns).WithSpec(appsv1.DeploymentSpec().
		WithSelector(applymetav1.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(corev1.PodTemplateSpec().WithLabels(labels).WithSpec(corev1.PodSpec().
			WithContainers(corev1.Container().WithName("web").WithImage("web:1").
				WithPorts(corev1.ContainerPort().WithContainerPort(80))))))
}

func TestApplyConfigurationsAreSharedConflictingAndForced(t *testing.T) {
	ctx, ns := testContext(t), namespace(t)
	deployments := typed(t).AppsV1().Deployments(ns)
	team := metav1.ApplyOptions{FieldManager: "team"}
	created, err := deployments.Apply(ctx, deploymentApply(ns), team)
	if err != nil || *created.Spec.Replicas != 1 || created.Spec.Template.Spec.Containers[0].Ports[0].Protocol != "TCP" {
		t.Fatalf("%v, %v", created, err)
	}
	again, err := deployments.Apply(ctx, deploymentApply(ns), team)
	if err != nil || again.Generation != created.Generation {
		t.Fatalf("again: %v, %v", again, err)
	}

	// Another manager owns the number of replicas; the first may not take it, unless by force.
	scaler := metav1.ApplyOptions{FieldManager: "scaler"}
	scale := appsv1.Deployment("web", ns).WithSpec(appsv1.DeploymentSpec().WithReplicas(0))
	if _, err := deployments.Apply(ctx, scale, scaler); err != nil {
		t.Fatal(err)
	}
	wanted := deploymentApply(ns)
	wanted.Spec.WithReplicas(2)
	_, err = deployments.Apply(ctx, wanted, team)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "scaler"`) || !strings.Contains(err.Error(), ".spec.replicas") {
		t.Fatalf("no conflict: %v", err)
	}
	forced := team
	forced.Force = true
	if taken, err := deployments.Apply(ctx, wanted, forced); err != nil || *taken.Spec.Replicas != 2 {
		t.Fatalf("%v, %v", taken, err)
	}

	// A manager extracts the fields that it applied; fields that it then omits are removed.
	live, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	extracted, err := appsv1.ExtractDeployment(live, "team")
	if err != nil || *extracted.Spec.Replicas != 2 || *extracted.Spec.Template.Spec.Containers[0].Image != "web:1" || extracted.Spec.MinReadySeconds != nil {
		t.Fatalf("%v, %v", extracted, err)
	}
	extracted.Spec.Template.Spec.Containers[0].WithEnv(corev1.EnvVar().WithName("MODE").WithValue("fast"))
	if more, err := deployments.Apply(ctx, extracted, team); err != nil || len(more.Spec.Template.Spec.Containers[0].Env) != 1 {
		t.Fatalf("%v, %v", more, err)
	}
	less, err := deployments.Apply(ctx, deploymentApply(ns), team)
	if err != nil || len(less.Spec.Template.Spec.Containers[0].Env) != 0 || *less.Spec.Replicas != 1 {
		t.Fatalf("%v, %v", less, err)
	}

	// The status is applied on its own path, by another set of fields.
	condition := appsv1.DeploymentCondition().WithType("Suite").WithStatus("True")
	status := appsv1.Deployment("web", ns).WithStatus(appsv1.DeploymentStatus().WithConditions(condition))
	applied, err := deployments.ApplyStatus(ctx, status, scaler)
	if err != nil || len(applied.Status.Conditions) == 0 {
		t.Fatalf("%v, %v", applied, err)
	}
	ofStatus, err := appsv1.ExtractDeploymentStatus(applied, "scaler")
	if err != nil || len(ofStatus.Status.Conditions) != 1 {
		t.Fatalf("%v, %v", ofStatus, err)
	}
	if _, err := deployments.ApplyStatus(ctx, appsv1.Deployment("none", ns), scaler); !apierrors.IsNotFound(err) {
		t.Errorf("the status of nothing: %v", err)
	}
	if _, err := deployments.Apply(ctx, deploymentApply(ns), metav1.ApplyOptions{}); err == nil {
		t.Error("no manager, no error")
	}
}
