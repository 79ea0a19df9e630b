// Package processes runs programs of others as local processes against a control plane: they are built from their published
// modules, get the kubeconfig of a ServiceAccount, and find the objects that their manifests create.
package processes

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	stopTimeout = 20 * time.Second
	// maxLog bounds what is kept of a process's log.
	maxLog = 256 << 10
)

// Build builds a program by the version in go.mod, and returns its path.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	command := exec.Command("go", "build", "-o", program, pkg)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s cannot be built: %v\n%s", pkg, err, output)
	}
	return program
}

// ModuleDirectory returns the directory of a module's files.
func ModuleDirectory(t testing.TB, module string) string {
	t.Helper()
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("%s has no directory: %v", module, err)
	}
	return strings.TrimSpace(string(output))
}

// FreePort returns a port of this host on which nobody listens.
func FreePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// Process is a running program.
type Process struct {
	name    string
	command *exec.Cmd
	log     *lastLog
	exited  chan struct{}
}

// Start starts a program, which is stopped with the test. A test that fails has the end of its log.
//
//   - environment: variables beside those of the test.
func Start(t testing.TB, name string, environment []string, program string, arguments ...string) *Process {
	t.Helper()
	process := &Process{name: name, command: exec.Command(program, arguments...), log: &lastLog{}, exited: make(chan struct{})}
	process.command.Env = append(os.Environ(), environment...)
	process.command.Stdout, process.command.Stderr = process.log, process.log
	// No process outlives a test that panics or is killed.
	process.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.command.Start(); err != nil {
		t.Fatalf("%s does not start: %v", name, err)
	}
	go func() {
		_ = process.command.Wait()
		close(process.exited)
	}()
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s: %s", name, process.log)
		}
	})
	return process
}

// Stop asks the process to end, and waits for that.
func (p *Process) Stop() error {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTimeout):
		_ = p.command.Process.Kill()
		return fmt.Errorf("%s does not stop within %v", p.name, stopTimeout)
	}
}

// Kill ends the process without asking it.
func (p *Process) Kill() {
	_ = p.command.Process.Kill()
	<-p.exited
}

// Log returns the end of what the process logged.
func (p *Process) Log() string {
	return p.log.String()
}

// lastLog keeps the end of what is written to it.
type lastLog struct {
	mutex sync.Mutex
	text  []byte
}

func (l *lastLog) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.text = append(l.text, text...)
	if len(l.text) > maxLog {
		l.text = append([]byte(nil), l.text[len(l.text)-maxLog/2:]...)
	}
	return len(text), nil
}

func (l *lastLog) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return string(l.text)
}
