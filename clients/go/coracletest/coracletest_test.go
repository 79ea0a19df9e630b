package coracletest

import (
	"context"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestEachTestHasAControlPlaneOfItsOwn(t *testing.T) {
	kubeconfigs := map[string]bool{}
	for range 2 {
		t.Run("one", func(t *testing.T) {
			controlPlane := StartControlPlane(t, "--nodes=0")
			clients, err := kubernetes.NewForConfig(controlPlane.Config)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := clients.CoreV1().Namespaces().Get(context.Background(), "default", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			kubeconfigs[controlPlane.Kubeconfig] = true
		})
	}
	if len(kubeconfigs) != 2 {
		t.Errorf("kubeconfigs: %v", kubeconfigs)
	}
	for kubeconfig := range kubeconfigs {
		if _, err := os.Stat(kubeconfig); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", kubeconfig, err)
		}
	}
}

func TestAFailedStartReportsTheProgramsError(t *testing.T) {
	for _, flag := range []string{"--no-such-flag", "--listen=192.0.2.1:1"} {
		if _, err := New(flag); err == nil || !strings.Contains(err.Error(), "coracle: ") {
			t.Errorf("%s: %v", flag, err)
		}
	}
	t.Setenv("CORACLE_BIN", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := New(); err == nil || !strings.Contains(err.Error(), "CORACLE_BIN") {
		t.Errorf("no program: %v", err)
	}
}

func TestASecondStopDoesNothing(t *testing.T) {
	controlPlane, err := New("--nodes=0")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := controlPlane.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}
