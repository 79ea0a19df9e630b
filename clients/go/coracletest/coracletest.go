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
	"errors"
	"fmt"
	"io"
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
	// maxLog bounds what is kept of the program's log.
	maxLog = 1 << 20
)

// ControlPlane is a running control plane. All its data is in memory.
type ControlPlane struct {
	// Kubeconfig has the rights of a cluster's administrator.
	Kubeconfig []byte
	// KubeconfigFile is the path of a file with the same content, for programs. It is removed by Stop.
	KubeconfigFile string

	stdin  io.Closer
	exited chan error
	kill   func() error
	log    *boundedLog
}

// Start starts a control plane for a test. The flags are those of `coracle run`, such as "--nodes=0". The test fails if the control plane
// does not start or stop, and has its log then.
func Start(t testing.TB, flags ...string) *ControlPlane {
	t.Helper()
	controlPlane, err := New(flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := controlPlane.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("coracle: %s", controlPlane.log)
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
	controlPlane := &ControlPlane{stdin: stdin, exited: make(chan error, 1), kill: command.Process.Kill, log: log}
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

// Stop stops the control plane. A second call does nothing.
func (c *ControlPlane) Stop() error {
	if c.stdin == nil {
		return nil
	}
	// Whether the pipe is closed already does not matter.
	_ = c.stdin.Close()
	c.stdin = nil
	select {
	case err := <-c.exited:
		if err != nil {
			return fmt.Errorf("coracle: %w\n%s", err, c.log)
		}
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("coracle does not stop within %v", stopTimeout), c.kill())
	}
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
