// Package coracletest starts a Coracle control plane for a Go test, and stops it with the test.
//
//	func TestSomething(t *testing.T) {
//		controlPlane := coracletest.Start(t)
//		config, err := clientcmd.RESTConfigFromKubeConfig(controlPlane.Kubeconfig)
//		// ...
//	}
//
// It depends on the standard library alone, so that it changes no version of a project. The module coracletest/restconfig returns the
// configuration of client-go.
//
// The program is $CORACLE_BIN, or coracle on the path.
package coracletest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
	// problemsTimeout is longer than what `coracle problems` takes at most.
	problemsTimeout = 10 * time.Second
	// maxLog bounds what is kept of the program's log.
	maxLog = 1 << 20
)

// ControlPlane is a running control plane. All its data is in memory.
type ControlPlane struct {
	// Kubeconfig has the rights of a cluster's administrator.
	Kubeconfig []byte
	// KubeconfigFile is the path of a file with the same content, for programs. It is removed by Stop.
	KubeconfigFile string

	program string
	stdin   io.Closer
	exited  chan error
	kill    func() error
	log     *boundedLog
	// root is the one that a fork began with, or its parent did; nil for a process.
	root *ControlPlane
	// end ends a fork; nil for a process.
	end func() error

	connect    sync.Once
	http       *http.Client
	url        string
	connectErr error
}

// Start starts a control plane for a test. The flags are those of `coracle run`, such as "--nodes=0". The test fails if the control plane
// does not start or stop. If the test fails for any reason, its log has the problems of the control plane, and the control plane's log.
func Start(t testing.TB, flags ...string) *ControlPlane {
	t.Helper()
	controlPlane, err := New(flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		controlPlane.logProblemsOfFailed(t)
		if err := controlPlane.Stop(); err != nil {
			t.Error(err)
		}
		if log := controlPlane.log.String(); t.Failed() && log != "" {
			t.Logf("coracle: %s", log)
		}
	})
	return controlPlane
}

// New starts a control plane that is shared by several tests, as in TestMain. Stop stops it.
func New(flags ...string) (*ControlPlane, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	// The command of `coracle run` ends with its standard input, which ends with this process. So no control plane outlives a
	// test that panics or is killed.
	arguments := append([]string{"run"}, flags...)
	arguments = append(arguments, "--", "sh", "-c", `echo "$KUBECONFIG"; exec cat >/dev/null`)
	command := exec.Command(program, arguments...)
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, stdoutWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	command.Stdout = stdoutWriter
	log := &boundedLog{}
	command.Stderr = log
	err = command.Start()
	stdoutWriter.Close()
	if err != nil {
		return nil, fmt.Errorf("%s does not start: %w", program, err)
	}
	controlPlane := &ControlPlane{program: program, stdin: stdin, exited: make(chan error, 1), kill: command.Process.Kill, log: log}
	go func() { controlPlane.exited <- command.Wait() }()

	if err := stdout.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return nil, errors.Join(err, controlPlane.Stop())
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		stopped := controlPlane.Stop()
		return nil, fmt.Errorf("%s is not ready: %w\n%s", program, errors.Join(err, stopped), log)
	}
	controlPlane.KubeconfigFile = strings.TrimSuffix(line, "\n")
	controlPlane.Kubeconfig, err = os.ReadFile(controlPlane.KubeconfigFile)
	if err != nil {
		return nil, errors.Join(err, controlPlane.Stop())
	}
	return controlPlane, nil
}

// Problems returns the objects that are not ready, have failed or are terminating, and their newest events, a line each; nothing if there
// are none.
func (c *ControlPlane) Problems() (string, error) {
	return c.run(problemsTimeout, "problems")
}

// run runs a command of the program on the control plane, and returns its output.
func (c *ControlPlane) run(timeout time.Duration, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	command := exec.CommandContext(ctx, c.program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.KubeconfigFile)
	output, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("coracle %s: %w: %s", arguments[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return string(output), err
}

// LogProblems logs the problems of a control plane at the end of a test that fails. It is for control planes that several tests share;
// those of Start have it already.
func (c *ControlPlane) LogProblems(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { c.logProblemsOfFailed(t) })
}

func (c *ControlPlane) logProblemsOfFailed(t testing.TB) {
	t.Helper()
	if !t.Failed() {
		return
	}
	problems, err := c.Problems()
	if err != nil {
		t.Logf("coracle problems: %v", err)
	}
	if problems != "" {
		t.Logf("coracle problems:\n%s", problems)
	}
}

// Stop stops the control plane. A second call does nothing.
func (c *ControlPlane) Stop() error {
	if end := c.end; end != nil {
		c.end = func() error { return nil }
		return end()
	}
	if c.stdin == nil {
		return nil
	}
	// Whether the pipe is closed already does not matter.
	_ = c.stdin.Close()
	c.stdin = nil
	select {
	case err := <-c.exited:
		if err != nil && !isInterrupted(err) {
			return fmt.Errorf("coracle: %w\n%s", err, c.log)
		}
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("coracle does not stop within %v\n%s", stopTimeout, c.log), c.kill())
	}
}

// isInterrupted reports whether the control plane has stopped because of SIGINT or SIGTERM, which a terminal sends to the tests as well.
func isInterrupted(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && (exit.ExitCode() == 130 || exit.ExitCode() == 143)
}

// find returns the path of the program.
func find() (string, error) {
	if program := os.Getenv("CORACLE_BIN"); program != "" {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("CORACLE_BIN: %w", err)
		}
		return program, nil
	}
	program, err := exec.LookPath("coracle")
	if err != nil {
		return "", fmt.Errorf("set CORACLE_BIN, or install coracle on the path: %w", err)
	}
	return program, nil
}

// boundedLog keeps the beginning of what is written to it.
type boundedLog struct {
	mutex sync.Mutex
	text  []byte
}

func (l *boundedLog) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if left := maxLog - len(l.text); left < len(text) {
		l.text = append(l.text, text[:left]...)
	} else {
		l.text = append(l.text, text...)
	}
	return len(text), nil
}

func (l *boundedLog) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return string(l.text)
}
