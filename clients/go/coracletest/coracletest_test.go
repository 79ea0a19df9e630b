package coracletest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEachTestHasAControlPlaneOfItsOwn(t *testing.T) {
	kubeconfigs := map[string]bool{}
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			controlPlane := Start(t, "--nodes=0")
			if !bytes.Contains(controlPlane.Kubeconfig, []byte("server: https://127.0.0.1:")) {
				t.Errorf("%s", controlPlane.Kubeconfig)
			}
			kubeconfigs[controlPlane.KubeconfigFile] = true
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
	missing := filepath.Join(t.TempDir(), "missing")
	t.Setenv("CORACLE_BIN", missing)
	if _, err := New(); err == nil || !strings.Contains(err.Error(), "CORACLE_BIN") || !strings.Contains(err.Error(), missing) {
		t.Errorf("a wrong program: %v", err)
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
	for i := 0; i < 2; i++ {
		if err := controlPlane.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}
