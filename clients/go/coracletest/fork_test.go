package coracletest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

func createConfigMap(t testing.TB, controlPlane *ControlPlane, name string) {
	t.Helper()
	body := fmt.Sprintf(`{"metadata": {"name": %q}}`, name)
	if _, err := controlPlane.call(forkTimeout, http.MethodPost, configMaps, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

func hasConfigMap(controlPlane *ControlPlane, name string) bool {
	_, err := controlPlane.call(forkTimeout, http.MethodGet, configMaps+"/"+name, nil)
	return err == nil
}

var setUps, failing atomic.Int32

func setUp(t testing.TB, controlPlane *ControlPlane) {
	setUps.Add(1)
	createConfigMap(t, controlPlane, "of-the-template")
}

func TestEachTestHasAForkOfOneTemplate(t *testing.T) {
	kubeconfigs := make(chan string, 3)
	t.Run("group", func(t *testing.T) {
		for i := 0; i < 3; i++ {
			i := i
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				fork := Template(t, "shared", setUp, "--nodes=0").Fork(t)
				createConfigMap(t, fork, fmt.Sprintf("of-%d", i))
				fork.Settle(t)
				for j := 0; j < 3; j++ {
					if hasConfigMap(fork, fmt.Sprintf("of-%d", j)) != (i == j) {
						t.Errorf("%d sees %d", i, j)
					}
				}
				if !hasConfigMap(fork, "of-the-template") {
					t.Error("nothing of the template")
				}
				kubeconfigs <- fork.KubeconfigFile
			})
		}
	})
	close(kubeconfigs)
	for kubeconfig := range kubeconfigs {
		if _, err := os.Stat(kubeconfig); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", kubeconfig, err)
		}
	}
	if count := setUps.Load(); count != 1 {
		t.Errorf("%d set-ups", count)
	}
	forks, err := Template(t, "shared", setUp, "--nodes=0").controlPlane.call(forkTimeout, http.MethodGet, forksPath, nil)
	if err != nil || !bytes.Contains(forks, []byte(`"forks":[]`)) {
		t.Errorf("forks are left: %s %v", forks, err)
	}
}

func TestAForkOfAForkGoesOn(t *testing.T) {
	parent := Start(t, "--nodes=0")
	fork, err := parent.NewFork(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	createConfigMap(t, fork, "a")
	second := fork.Fork(t)
	for i := 0; i < 2; i++ {
		if err := fork.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if !hasConfigMap(second, "a") || hasConfigMap(parent, "a") {
		t.Error("the second fork begins with the first one")
	}
}

func TestAForkHasOptionsOfItsOwn(t *testing.T) {
	parent := Start(t, "--nodes=0")
	fork := parent.Fork(t, WithManualClock(), WithServiceURL("default", "hook", "https://127.0.0.1:9443"))
	began, err := fork.Clock().Now()
	if err != nil {
		t.Fatal(err)
	}
	if moved, err := fork.Clock().Advance(time.Hour); err != nil || moved.Sub(began) != time.Hour {
		t.Errorf("%v after %v: %v", moved, began, err)
	}
	_, err = parent.NewFork(t.TempDir(), WithServiceURL("default", "hook", "127.0.0.1:9443"))
	if err == nil || !strings.Contains(err.Error(), "webhookServiceURLs") {
		t.Errorf("no URL with https: %v", err)
	}
}

func TestASetUpOutlivesItsTest(t *testing.T) {
	name := fmt.Sprint("outlives ", failing.Add(1))
	var calls []string
	ctx := context.Background()
	setUp := func(t testing.TB, _ *ControlPlane) {
		for _, call := range []string{"first", "second"} {
			call := call
			t.Cleanup(func() { calls = append(calls, call) })
		}
		if test, hasOne := t.(interface{ Context() context.Context }); hasOne {
			ctx = test.Context()
		}
	}
	t.Run("first", func(t *testing.T) { Template(t, name, setUp, "--nodes=0") })
	if len(calls) > 0 || ctx.Done() == nil || ctx.Err() != nil {
		t.Errorf("%v after the first test: %v", calls, ctx.Err())
	}
	setUpInVain := func(t testing.TB, controlPlane *ControlPlane) {
		setUp(t, controlPlane)
		t.Fatal("on purpose")
	}
	test := &stopped{recorder: recorder{TB: t}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Template(test, name+" and fails", setUpInVain, "--nodes=0")
	}()
	<-done
	if got := strings.Join(calls, " "); got != "second first" || ctx.Err() == nil {
		t.Errorf("after a failure: %q %v", got, ctx.Err())
	}
}

func failingSetUp(t testing.TB, _ *ControlPlane) {
	t.Helper()
	t.Fatal("no definitions")
}

func TestASetUpThatFailsFailsAllTests(t *testing.T) {
	// Another one in each run.
	name := fmt.Sprint("failing ", failing.Add(1))
	for i := 0; i < 2; i++ {
		test := &stopped{recorder: recorder{TB: t}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Template(test, name, failingSetUp, "--nodes=0")
		}()
		<-done
		want := []string{"no definitions", "failed in TestThatFails"}[i]
		if !strings.Contains(test.log, want) {
			t.Errorf("%d: %s", i, test.log)
		}
	}
}

// stopped is a test that ends its goroutine when it fails, as a test does.
type stopped struct {
	recorder
}

func (s *stopped) Name() string           { return "TestThatFails" }
func (s *stopped) Fatal(arguments ...any) { s.Fatalf("%s", fmt.Sprint(arguments...)) }
func (s *stopped) FailNow()               { s.Fatalf("") }
func (s *stopped) Fatalf(f string, arguments ...any) {
	s.failed = true
	s.Logf(f, arguments...)
	runtime.Goexit()
}
