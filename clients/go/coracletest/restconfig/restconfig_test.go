package restconfig

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

func TestAConfigurationIsThatOfAnAdministrator(t *testing.T) {
	clients, err := kubernetes.NewForConfig(Start(t, "--nodes=0"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Namespaces().Get(context.Background(), "default", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestForksOfATemplateHaveConfigurations(t *testing.T) {
	namespaces := func(t testing.TB, config *rest.Config) corev1.NamespaceInterface {
		t.Helper()
		clients, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return clients.CoreV1().Namespaces()
	}
	named := func(name string) *v1.Namespace { return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	base := Template(t, "v1", func(t testing.TB, config *rest.Config) {
		t.Helper()
		if _, err := namespaces(t, config).Create(context.Background(), named("shop"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}, "--nodes=0")
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			controlPlane, config := base.ForkControlPlane(t)
			namespaces := namespaces(t, config)
			if _, err := namespaces.Get(context.Background(), "shop", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			// In the other one it would exist already.
			if _, err := namespaces.Create(context.Background(), named("mine"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			controlPlane.Settle(t)
			if problems, err := controlPlane.Problems(); err != nil || problems != "" {
				t.Errorf("%v: %s", err, problems)
			}
		})
	}
}
