package coracletest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
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

func TestATestThatFailsLogsTheProblems(t *testing.T) {
	for _, name := range []string{"own", "shared"} {
		t.Run(name, func(t *testing.T) {
			failing := &recorder{TB: t}
			var controlPlane *ControlPlane
			if name == "own" {
				controlPlane = Start(failing, "--nodes=0")
			} else {
				controlPlane = startShared(t, "--nodes=0")
				controlPlane.LogProblems(failing)
			}
			// Nothing schedules it.
			createPod(t, controlPlane, "lonely")
			failing.failed = true
			failing.end()
			for _, expected := range []string{"objects that are not ready (1):", "pod/default/lonely: Pending"} {
				if !strings.Contains(failing.log, expected) {
					t.Errorf("no %q in %q", expected, failing.log)
				}
			}
		})
	}
}

func TestATestThatPassesLogsNothing(t *testing.T) {
	passing := &recorder{TB: t}
	controlPlane := Start(passing, "--nodes=0")
	createPod(t, controlPlane, "lonely")
	passing.end()
	if passing.log != "" {
		t.Error(passing.log)
	}
}

func TestProblemsOfAStoppedControlPlaneAreAnError(t *testing.T) {
	controlPlane, err := New("--nodes=0")
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := controlPlane.Problems(); problems != "" || err != nil {
		t.Errorf("%q, %v", problems, err)
	}
	if err := controlPlane.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := controlPlane.Problems(); err == nil || !strings.Contains(err.Error(), "coracle: ") {
		t.Errorf("%v", err)
	}
}

// startShared starts a control plane as TestMain would.
func startShared(t *testing.T, flags ...string) *ControlPlane {
	controlPlane, err := New(flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := controlPlane.Stop(); err != nil {
			t.Error(err)
		}
	})
	return controlPlane
}

// recorder is a test of which the end and the outcome are set, and the log is kept.
type recorder struct {
	testing.TB
	cleanups []func()
	failed   bool
	log      string
}

func (r *recorder) Helper()                    {}
func (r *recorder) Cleanup(f func())           { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool               { return r.failed }
func (r *recorder) Logf(f string, args ...any) { r.log += fmt.Sprintf(f, args...) }

func (r *recorder) end() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

// createPod creates a pod in the namespace default, with the standard library alone.
func createPod(t *testing.T, controlPlane *ControlPlane, name string) {
	t.Helper()
	member := func(key string) []byte {
		found := regexp.MustCompile(key + `: "?([^"\s]+)`).FindSubmatch(controlPlane.Kubeconfig)
		if found == nil {
			t.Fatalf("no %s in %s", key, controlPlane.Kubeconfig)
		}
		return found[1]
	}
	pem := func(key string) []byte {
		text, err := base64.StdEncoding.DecodeString(string(member(key)))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	certificate, err := tls.X509KeyPair(pem("client-certificate-data"), pem("client-key-data"))
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem("certificate-authority-data"))
	config := &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{certificate}}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: startTimeout}
	pod := fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {"containers": [{"name": "app", "image": "app"}]}}`, name)
	url := string(member("server")) + "/api/v1/namespaces/default/pods"
	response, err := client.Post(url, "application/json", strings.NewReader(pod))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	defer client.CloseIdleConnections()
	if response.StatusCode != http.StatusCreated {
		t.Fatal(response.Status)
	}
}
