package coracletest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	forksPath   = "/coracle/v1alpha1/forks"
	forkTimeout = 60 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 1 << 20
)

// A ForkOption makes a fork differ from the control plane that it begins with.
type ForkOption func(*forkRequest)

type forkRequest struct {
	Clock              string            `json:"clock,omitempty"`
	WebhookServiceURLs map[string]string `json:"webhookServiceURLs,omitempty"`
}

// WithManualClock gives a fork a clock that stands still until it is moved on. It begins at the time of the control plane.
func WithManualClock() ForkOption {
	return func(request *forkRequest) { request.Clock = "manual" }
}

// WithServiceURL has the webhooks that name a Service call a server of the test, such as https://127.0.0.1:9443, in one fork alone.
func WithServiceURL(namespace, name, url string) ForkOption {
	return func(request *forkRequest) {
		if request.WebhookServiceURLs == nil {
			request.WebhookServiceURLs = map[string]string{}
		}
		request.WebhookServiceURLs[namespace+"/"+name] = url
	}
}

// Fork makes a control plane for a test that begins with the objects, the history and the time of this one, and goes its own way: what
// happens in one is never seen in the other. It costs milliseconds, so that each test, and each parallel one, can have its own. It ends with
// the test.
func (c *ControlPlane) Fork(t testing.TB, options ...ForkOption) *ControlPlane {
	t.Helper()
	fork, err := c.NewFork(t.TempDir(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		fork.logProblemsOfFailed(t)
		if err := fork.Stop(); err != nil {
			t.Error(err)
		}
	})
	return fork
}

// NewFork makes a fork that is shared by several tests. Its kubeconfig is written into the directory. Stop ends it. It ends with the
// process that New has started, not with the fork that it was made from.
func (c *ControlPlane) NewFork(directory string, options ...ForkOption) (*ControlPlane, error) {
	var request forkRequest
	for _, option := range options {
		option(&request)
	}
	document, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	body, err := c.call(forkTimeout, http.MethodPost, forksPath, document)
	if err != nil {
		return nil, err
	}
	var answer struct{ Name, Server string }
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("coracle fork: unexpected answer %q: %w", body, err)
	}
	if answer.Name == "" || answer.Server == "" {
		return nil, fmt.Errorf("coracle fork: unexpected answer %q: it has no name or no server", body)
	}
	// All forks are known to the one that is no fork, which goes on for as long as they do.
	root := c
	if c.root != nil {
		root = c.root
	}
	fork := &ControlPlane{
		root:           root,
		KubeconfigFile: filepath.Join(directory, answer.Name+".yaml"),
		program:        c.program,
		// The credentials and the authority are those of the control plane.
		Kubeconfig: serverLine.ReplaceAll(c.Kubeconfig, []byte("${1}"+answer.Server)),
		log:        c.log,
	}
	fork.end = func() error {
		_, err := root.call(forkTimeout, http.MethodDelete, forksPath+"/"+answer.Name, nil)
		return errors.Join(err, removed(fork.KubeconfigFile))
	}
	if err := os.WriteFile(fork.KubeconfigFile, fork.Kubeconfig, 0o600); err != nil {
		return nil, errors.Join(err, fork.Stop())
	}
	return fork, nil
}

func removed(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// The lines of a kubeconfig that coracle writes, each of which is there once.
var (
	serverLine      = regexp.MustCompile(`(?m)^(\s*server: )"?([^"\s]+)"?$`)
	authorityLine   = regexp.MustCompile(`(?m)^\s*certificate-authority-data: "?([^"\s]+)"?$`)
	certificateLine = regexp.MustCompile(`(?m)^\s*client-certificate-data: "?([^"\s]+)"?$`)
	keyLine         = regexp.MustCompile(`(?m)^\s*client-key-data: "?([^"\s]+)"?$`)
)

// client returns a client of the control plane, and its URL.
func (c *ControlPlane) client() (*http.Client, string, error) {
	var parts [3][]byte
	for i, line := range []*regexp.Regexp{authorityLine, certificateLine, keyLine} {
		match := line.FindSubmatch(c.Kubeconfig)
		if match == nil {
			return nil, "", fmt.Errorf("%s has no line %v", c.KubeconfigFile, line)
		}
		decoded, err := base64.StdEncoding.DecodeString(string(match[1]))
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", c.KubeconfigFile, err)
		}
		parts[i] = decoded
	}
	certificate, err := tls.X509KeyPair(parts[1], parts[2])
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", c.KubeconfigFile, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(parts[0])
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}}
	server := serverLine.FindSubmatch(c.Kubeconfig)
	if server == nil {
		return nil, "", fmt.Errorf("%s has no server", c.KubeconfigFile)
	}
	return &http.Client{Transport: transport}, string(server[2]), nil
}

// call makes a request of the administrator, and returns the body of the response.
func (c *ControlPlane) call(timeout time.Duration, method, path string, body []byte) ([]byte, error) {
	c.connect.Do(func() { c.http, c.url, c.connectErr = c.client() })
	if c.connectErr != nil {
		return nil, c.connectErr
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		var status struct{ Message string }
		if err := json.Unmarshal(answer, &status); err != nil || status.Message == "" {
			status.Message = string(answer)
		}
		return nil, fmt.Errorf("coracle: %s %s: %s: %s", method, path, response.Status, status.Message)
	}
	return answer, nil
}

// A Base is a control plane that was set up once in this process, for tests that each fork it.
type Base struct {
	controlPlane *ControlPlane
}

// Fork makes a control plane for a test that begins with what was set up; see ControlPlane.Fork.
func (b *Base) Fork(t testing.TB, options ...ForkOption) *ControlPlane {
	t.Helper()
	return b.controlPlane.Fork(t, options...)
}

// settingUp is the test that sets up a template, which outlives it.
type settingUp struct {
	testing.TB
	context context.Context
	cancel  context.CancelFunc
	// mutex guards cleanups.
	mutex    sync.Mutex
	cleanups []func()
}

// Cleanup keeps a function for a set-up that fails.
func (s *settingUp) Cleanup(function func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.cleanups = append(s.cleanups, function)
}

// Context returns a context that ends if the set-up fails.
func (s *settingUp) Context() context.Context {
	return s.context
}

// fail ends what the set-up has started: it calls the functions, the last one first, as a test does. One that ends the test or panics keeps
// none from being called.
func (s *settingUp) fail() {
	s.cancel()
	s.mutex.Lock()
	last := len(s.cleanups) - 1
	if last < 0 {
		s.mutex.Unlock()
		return
	}
	function := s.cleanups[last]
	s.cleanups = s.cleanups[:last]
	s.mutex.Unlock()
	defer s.fail()
	function()
}

type template struct {
	done         chan struct{}
	controlPlane *ControlPlane
	// failure says who set it up in vain.
	failure string
}

var templates = struct {
	sync.Mutex
	byKey map[string]*template
}{byKey: map[string]*template{}}

// Template sets up a control plane once in this process, by its name and flags, for tests that each fork it:
//
//	func TestSomething(t *testing.T) {
//		controlPlane := coracletest.Template(t, "v1", setUp).Fork(t)
//		// ...
//	}
//
// Tests that come together wait for one set-up. If the set-up fails, so do all tests that want it. The control plane ends with the process,
// and so does what the set-up starts: functions that it gives to t.Cleanup are called, and t.Context() ends, only if it fails. What
// t.TempDir, t.Setenv and t.Chdir make or change is that of the test that came first, and ends with it.
func Template(t testing.TB, name string, setUp func(t testing.TB, controlPlane *ControlPlane), flags ...string) *Base {
	t.Helper()
	key := strings.Join(append([]string{name, os.Getenv("CORACLE_BIN")}, flags...), "\x00")
	templates.Lock()
	known, isKnown := templates.byKey[key]
	if !isKnown {
		known = &template{done: make(chan struct{}), failure: t.Name()}
		templates.byKey[key] = known
	}
	templates.Unlock()
	if !isKnown {
		// A set-up that ends the test ends here too.
		defer close(known.done)
		controlPlane, err := New(flags...)
		if err != nil {
			t.Fatal(err)
		}
		settingUp := &settingUp{TB: t}
		settingUp.context, settingUp.cancel = context.WithCancel(context.Background())
		ended := false
		defer func() {
			if !ended {
				defer func() {
					controlPlane.logProblemsOfFailed(t)
					_ = controlPlane.Stop()
				}()
				settingUp.fail()
			}
		}()
		setUp(settingUp, controlPlane)
		if t.Failed() {
			t.FailNow()
		}
		ended = true
		known.controlPlane, known.failure = controlPlane, ""
		return &Base{controlPlane}
	}
	<-known.done
	if known.failure != "" {
		t.Fatalf("the set-up of the template %q failed in %s", name, known.failure)
	}
	return &Base{known.controlPlane}
}
