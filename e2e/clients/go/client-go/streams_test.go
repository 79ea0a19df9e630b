package clientgo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	streamhttp "k8s.io/streaming/pkg/httpstream"
)

// runPod creates the pod web in a namespace of its own, and returns the latter once the pod is ready.
func runPod(t *testing.T, annotations map[string]string, command ...string) string {
	t.Helper()
	ns := namespace(t)
	pods := typed(t).CoreV1().Pods(ns)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1", Command: command}}},
	}
	if len(command) > 0 {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	if _, err := pods.Create(testContext(t), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady {
				return condition.Status == corev1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	return ns
}

func subresource(t *testing.T, ns, name string, options *corev1.PodExecOptions) *url.URL {
	request := typed(t).CoreV1().RESTClient().Get().Resource("pods").Namespace(ns).Name("web").SubResource(name)
	if options != nil {
		request = request.VersionedParams(options, scheme.ParameterCodec)
	}
	return request.URL()
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// executors are those that kubectl uses: the last one is refused with its first protocol, and falls back.
var executors = map[string]func(*testing.T, *url.URL) remotecommand.Executor{
	"SPDY": func(t *testing.T, url *url.URL) remotecommand.Executor {
		return must[remotecommand.Executor](t)(remotecommand.NewSPDYExecutor(config, http.MethodPost, url))
	},
	"WebSocket": func(t *testing.T, url *url.URL) remotecommand.Executor {
		return must[remotecommand.Executor](t)(remotecommand.NewWebSocketExecutor(config, http.MethodGet, url.String()))
	},
	"fallback": func(t *testing.T, url *url.URL) remotecommand.Executor {
		refused, err := remotecommand.NewWebSocketExecutorForProtocols(config, http.MethodGet, url.String(), "v9.channel.k8s.io")
		primary := must[remotecommand.Executor](t)(refused, err)
		secondary := must[remotecommand.Executor](t)(remotecommand.NewSPDYExecutor(config, http.MethodPost, url))
		return must[remotecommand.Executor](t)(remotecommand.NewFallbackExecutor(primary, secondary, streamhttp.IsUpgradeFailure))
	},
}

func withEachExecutor(t *testing.T, test func(*testing.T, func(*url.URL) remotecommand.Executor)) {
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			test(t, func(url *url.URL) remotecommand.Executor { return executor(t, url) })
		})
	}
}

// oneSize is the queue of a terminal with one size.
type oneSize struct{ sent bool }

func (q *oneSize) Next() *remotecommand.TerminalSize {
	if q.sent {
		return nil
	}
	q.sent = true
	return &remotecommand.TerminalSize{Width: 80, Height: 24}
}

func exitCode(err error) int {
	var exit exec.CodeExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	return -1
}

func TestACommandAnswersAsThePodSays(t *testing.T) {
	binary := bytes.Repeat([]byte{0, 1, 2, 10, 13, 127, 128, 255}, 12_000)
	answers, err := json.Marshal(map[string]any{
		"ls *":      map[string]any{"stdout": "bin\netc\n"},
		"ls /none":  map[string]any{"stdout": "before\n", "stderr": "ls: no such file\n", "exitCode": 2},
		"cat /data": map[string]any{"stdoutBase64": base64.StdEncoding.EncodeToString(binary)},
		"wc -c":     map[string]any{"stdout": "many\n", "after": "1s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ns := runPod(t, map[string]string{"sim.coracle.dev/exec": string(answers)})
	withEachExecutor(t, func(t *testing.T, executor func(*url.URL) remotecommand.Executor) {
		for _, test := range []struct {
			command        []string
			tty            bool
			stdin          io.Reader
			stdout, stderr string
			code           int
		}{
			{command: []string{"ls", "/"}, stdout: "bin\netc\n"},
			{command: []string{"ls", "/none"}, stdout: "before\n", stderr: "ls: no such file\n", code: 2},
			{command: []string{"ls", "/none"}, tty: true, stdout: "before\r\nls: no such file\r\n", code: 2},
			{command: []string{"cat", "/data"}, stdout: string(binary)},
			{command: []string{"sh", "-c", "echo a; sleep 1; exit 3"}, stdout: "a\n", code: 3},
			{command: []string{"wc", "-c"}, stdin: bytes.NewReader(make([]byte, 10<<20)), stdout: "many\n"},
			{command: []string{"sleep", "3600"}, tty: true, stdin: strings.NewReader("\x03"), code: 130},
		} {
			options := &corev1.PodExecOptions{
				Command: test.command, Stdin: test.stdin != nil, Stdout: true, Stderr: !test.tty, TTY: test.tty,
			}
			var stdout, stderr bytes.Buffer
			streams := remotecommand.StreamOptions{Stdin: test.stdin, Stdout: &stdout, Tty: test.tty}
			if test.tty {
				streams.TerminalSizeQueue = &oneSize{}
			} else {
				streams.Stderr = &stderr
			}
			err := executor(subresource(t, ns, "exec", options)).StreamWithContext(testContext(t), streams)
			if stdout.String() != test.stdout || stderr.String() != test.stderr {
				t.Errorf("%q has the outputs %.99q and %q", test.command, stdout.String(), stderr.String())
			}
			if code := exitCode(err); code != test.code && (test.code != 0 || err != nil) {
				t.Errorf("%q: %v", test.command, err)
			}
			// Each kind reads its input anew.
			if seeker, ok := test.stdin.(io.Seeker); ok {
				if _, err := seeker.Seek(0, io.SeekStart); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestACommandThatIsNotSimulatedIsRefused(t *testing.T) {
	ns := runPod(t, nil)
	options := &corev1.PodExecOptions{Command: []string{"nginx", "-t"}, Stderr: true}
	withEachExecutor(t, func(t *testing.T, executor func(*url.URL) remotecommand.Executor) {
		var stderr bytes.Buffer
		err := executor(subresource(t, ns, "exec", options)).StreamWithContext(testContext(t), remotecommand.StreamOptions{Stderr: &stderr})
		var exit exec.CodeExitError
		if !errors.As(err, &exit) || exit.Code != 127 || !strings.HasPrefix(stderr.String(), `exec of "nginx -t" is not simulated`) {
			t.Error(err, stderr.String())
		}
	})
}

// stream writes the output, and at last the error.
func stream(ctx context.Context, executor remotecommand.Executor, stdout *io.PipeWriter) error {
	err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout})
	stdout.CloseWithError(err)
	return err
}

func TestACommandEndsWithItsContextAndWithItsContainer(t *testing.T) {
	ns := runPod(t, nil)
	options := &corev1.PodExecOptions{Command: []string{"sh", "-c", "echo ready; sleep 3600"}, Stdout: true}
	withEachExecutor(t, func(t *testing.T, executor func(*url.URL) remotecommand.Executor) {
		ctx, cancel := context.WithCancel(testContext(t))
		defer cancel()
		reader, writer := io.Pipe()
		ended := make(chan error, 1)
		process := executor(subresource(t, ns, "exec", options))
		go func() { ended <- stream(ctx, process, writer) }()
		if line := make([]byte, 6); must[int](t)(io.ReadFull(reader, line)) == 0 || string(line) != "ready\n" {
			t.Errorf("%q", line)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	ended := make(chan error, len(executors))
	for _, executor := range executors {
		reader, writer := io.Pipe()
		process := executor(t, subresource(t, ns, "exec", options))
		ctx := testContext(t)
		go func() { ended <- stream(ctx, process, writer) }()
		if must[int](t)(io.ReadFull(reader, make([]byte, 6))); t.Failed() {
			return
		}
	}
	now := int64(0)
	if err := typed(t).CoreV1().Pods(ns).Delete(testContext(t), "web", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	for range executors {
		if err := <-ended; exitCode(err) != 137 {
			t.Error(err)
		}
	}
}

func TestAnAttachedClientSeesWhatIsWrittenUntilTheContainerEnds(t *testing.T) {
	withEachExecutor(t, func(t *testing.T, executor func(*url.URL) remotecommand.Executor) {
		ns := runPod(t, nil, "sh", "-c", "sleep 2; echo one; sleep 1; echo two")
		options := &corev1.PodExecOptions{Stdin: true, Stdout: true, Stderr: true}
		var stdout, stderr bytes.Buffer
		err := executor(subresource(t, ns, "attach", options)).StreamWithContext(testContext(t), remotecommand.StreamOptions{
			Stdin: strings.NewReader("a line\n"), Stdout: &stdout, Stderr: &stderr,
		})
		if err != nil || stdout.String() != "one\ntwo\n" || stderr.String() != "" {
			t.Errorf("%v, %q, %q", err, stdout.String(), stderr.String())
		}
	})
}

// serve accepts connections until the test ends, and returns the port.
func serve(t *testing.T, handle func(*net.TCPConn)) int {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer connection.Close()
				if err := connection.SetDeadline(time.Now().Add(deadline)); err != nil {
					t.Error(err)
				}
				handle(connection.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		connections.Wait()
	})
	return listener.Addr().(*net.TCPAddr).Port
}

// exchange sends a seed, data of it and its end, while it reads as much followed by the checksum of what the other side has read.
func exchange(connection *net.TCPConn, size int, seed byte) error {
	sent := make([]byte, size)
	if _, err := rand.NewChaCha8([32]byte{seed}).Read(sent); err != nil {
		return err
	}
	sending := make(chan error, 1)
	go func() {
		_, err := connection.Write(append([]byte{seed}, sent...))
		sending <- errors.Join(err, connection.CloseWrite())
	}()
	received, err := io.ReadAll(connection)
	if err = errors.Join(err, <-sending); err != nil {
		return err
	}
	if len(received) != size+sha256.Size {
		return fmt.Errorf("%d bytes are received", len(received))
	}
	if checksum := sha256.Sum256(sent); !bytes.Equal(received[size:], checksum[:]) {
		return errors.New("other bytes are received than were sent")
	}
	want := make([]byte, size)
	if _, err = rand.NewChaCha8([32]byte{^seed}).Read(want); err == nil && !bytes.Equal(received[:size], want) {
		err = errors.New("other bytes are received than the process sent")
	}
	return err
}

// answer is the other side of exchange: its own data is of the seed's complement.
func answer(t *testing.T, size int) func(*net.TCPConn) {
	return func(connection *net.TCPConn) {
		sending := make(chan error, 1)
		seed := make(chan byte, 1)
		go func() {
			data := make([]byte, size)
			_, err := rand.NewChaCha8([32]byte{^<-seed}).Read(data)
			if err == nil {
				_, err = connection.Write(data)
			}
			sending <- err
		}()
		first := make([]byte, 1)
		_, err := io.ReadFull(connection, first)
		seed <- first[0]
		checksum := sha256.New()
		if err == nil {
			_, err = io.Copy(checksum, connection)
		}
		if err = errors.Join(err, <-sending); err == nil {
			_, err = connection.Write(checksum.Sum(nil))
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// dialers are those that kubectl uses.
var dialers = map[string]func(*testing.T, *url.URL) httpstream.Dialer{
	"SPDY": func(t *testing.T, url *url.URL) httpstream.Dialer {
		transport, upgrader, err := spdy.RoundTripperFor(config)
		if err != nil {
			t.Fatal(err)
		}
		return spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	},
	"WebSocket": func(t *testing.T, url *url.URL) httpstream.Dialer {
		return must[httpstream.Dialer](t)(portforward.NewSPDYOverWebsocketDialer(url, config))
	},
}

// forwarder forwards ports of the pod web until the test ends.
type forwarder struct {
	*portforward.PortForwarder
	ended chan error
}

func forward(t *testing.T, dialer httpstream.Dialer, ports ...string) forwarder {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder := forwarder{ended: make(chan error, 1)}
	forwarder.PortForwarder = must[*portforward.PortForwarder](t)(portforward.New(dialer, ports, stop, ready, io.Discard, io.Discard))
	go func() { forwarder.ended <- forwarder.ForwardPorts() }()
	t.Cleanup(func() { close(stop) })
	select {
	case <-ready:
	case err := <-forwarder.ended:
		t.Fatal(err)
	case <-time.After(deadline):
		t.Fatal("the ports are not forwarded")
	}
	return forwarder
}

func (f forwarder) dial(t *testing.T, remote uint16) *net.TCPConn {
	t.Helper()
	for _, port := range must[[]portforward.ForwardedPort](t)(f.GetPorts()) {
		if port.Remote == remote {
			connection := must[net.Conn](t)(net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port.Local)))
			t.Cleanup(func() { connection.Close() })
			if err := connection.SetDeadline(time.Now().Add(deadline)); err != nil {
				t.Fatal(err)
			}
			return connection.(*net.TCPConn)
		}
	}
	t.Fatalf("no port %d", remote)
	return nil
}

func TestMuchDataIsForwardedBothWaysOnSeveralConnections(t *testing.T) {
	const size, connections = 10 << 20, 4
	port := serve(t, answer(t, size))
	ns := runPod(t, map[string]string{"sim.coracle.dev/forward": fmt.Sprintf("7=127.0.0.1:%d, 8=localhost:%d", port, port)})
	for name, dialer := range dialers {
		t.Run(name, func(t *testing.T) {
			forwarder := forward(t, dialer(t, subresource(t, ns, "portforward", nil)), "0:7", "0:8")
			var group sync.WaitGroup
			for i := range connections {
				connection := forwarder.dial(t, uint16(7+i%2))
				group.Go(func() {
					if err := exchange(connection, size, byte(i)); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
		})
	}
}

func TestASilentConnectionDoesNotStopOthers(t *testing.T) {
	const size = 4 << 20
	// Nothing reads what the first one is sent.
	release := make(chan struct{})
	stuck := serve(t, func(connection *net.TCPConn) { <-release })
	t.Cleanup(func() { close(release) })
	port := serve(t, answer(t, size))
	ns := runPod(t, map[string]string{"sim.coracle.dev/forward": fmt.Sprintf("7=127.0.0.1:%d, 8=127.0.0.1:%d", stuck, port)})
	for name, dialer := range dialers {
		t.Run(name, func(t *testing.T) {
			forwarder := forward(t, dialer(t, subresource(t, ns, "portforward", nil)), "0:7", "0:8")
			silent := forwarder.dial(t, 7)
			if _, err := silent.Write(make([]byte, 16<<10)); err != nil {
				t.Fatal(err)
			}
			if err := exchange(forwarder.dial(t, 8), size, 1); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheEndOfAProcessIsTheEndOfItsConnection(t *testing.T) {
	port := serve(t, func(connection *net.TCPConn) {
		if _, err := connection.Write([]byte("220 ready\r\n")); err != nil {
			t.Error(err)
		}
	})
	ns := runPod(t, map[string]string{"sim.coracle.dev/forward": fmt.Sprintf("25=127.0.0.1:%d", port)})
	for name, dialer := range dialers {
		t.Run(name, func(t *testing.T) {
			forwarder := forward(t, dialer(t, subresource(t, ns, "portforward", nil)), "0:25")
			for range 100 {
				connection := forwarder.dial(t, 25)
				greeting, err := io.ReadAll(connection)
				if err != nil || string(greeting) != "220 ready\r\n" {
					t.Fatalf("%q, %v", greeting, err)
				}
				connection.Close()
			}
		})
	}
}

func TestAPortThatLeadsNowhereEndsTheForwarding(t *testing.T) {
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	unused := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	ns := runPod(t, map[string]string{"sim.coracle.dev/forward": fmt.Sprintf("81=127.0.0.1:%d", unused)})
	for name, dialer := range dialers {
		for _, port := range []uint16{81, 82} {
			t.Run(fmt.Sprintf("%s, port %d", name, port), func(t *testing.T) {
				forwarder := forward(t, dialer(t, subresource(t, ns, "portforward", nil)), fmt.Sprintf("0:%d", port))
				if data, err := io.ReadAll(forwarder.dial(t, port)); len(data) > 0 || err != nil {
					t.Errorf("%q, %v", data, err)
				}
				select {
				case err := <-forwarder.ended:
					if !errors.Is(err, portforward.ErrLostConnectionToPod) {
						t.Error(err)
					}
				case <-time.After(deadline):
					t.Error("the ports are still forwarded")
				}
			})
		}
	}
}

func TestPortsOfAPodWithoutProcessesAreRefused(t *testing.T) {
	ns := runPod(t, nil)
	for name, dialer := range dialers {
		t.Run(name, func(t *testing.T) {
			dialer := dialer(t, subresource(t, ns, "portforward", nil))
			forwarder := must[*portforward.PortForwarder](t)(portforward.New(dialer, []string{"0:80"}, nil, nil, io.Discard, io.Discard))
			if err := forwarder.ForwardPorts(); err == nil || !strings.Contains(err.Error(), "port-forward to pod web is not simulated") {
				t.Error(err)
			}
		})
	}
}

func TestAPodAndItsServiceAreReachedThroughTheirProxies(t *testing.T) {
	ctx := testContext(t)
	site := &http.Server{Handler: http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/missing" {
			response.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprintf(response, "%s %s", request.Method, request.URL)
	})}
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	go site.Serve(listener)
	t.Cleanup(func() { site.Close() })
	ns := runPod(t, map[string]string{"sim.coracle.dev/forward": fmt.Sprintf("80=%s", listener.Addr())})
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"},
		Ports:    []corev1.ServicePort{{Name: "http", Port: 8000, TargetPort: intstr.FromInt32(80)}},
	}}
	core := typed(t).CoreV1()
	if _, err := core.Services(ns).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "endpoints", func(ctx context.Context) (bool, error) {
		_, err := core.Services(ns).ProxyGet("", "site", "8000", "/", nil).DoRaw(ctx)
		if apierrors.IsServiceUnavailable(err) {
			return false, nil
		}
		return err == nil, err
	})
	for _, port := range []string{"8000", "http"} {
		answer, err := core.Services(ns).ProxyGet("http", "site", port, "/a/b", map[string]string{"c": "d"}).DoRaw(ctx)
		if err != nil || string(answer) != "GET /a/b?c=d" {
			t.Errorf("%q, %v", answer, err)
		}
	}
	answer, err := core.Pods(ns).ProxyGet("", "web", "80", "/a/b", map[string]string{"c": "d"}).DoRaw(ctx)
	if err != nil || string(answer) != "GET /a/b?c=d" {
		t.Errorf("%q, %v", answer, err)
	}
	if answer, err = core.Pods(ns).ProxyGet("", "web", "", "/missing", nil).DoRaw(ctx); !apierrors.IsNotFound(err) || string(answer) != "GET /missing" {
		t.Errorf("%q, %v", answer, err)
	}
}

// Each of many connections is used while the others are open.
func TestManyConnectionsAreForwarded(t *testing.T) {
	echo := serve(t, func(connection *net.TCPConn) {
		if _, err := io.Copy(connection, connection); err != nil {
			t.Error(err)
		}
	})
	ns := runPod(t, map[string]string{"sim.coracle.dev/forward": fmt.Sprintf("7=127.0.0.1:%d", echo)})
	ask := func(connection *net.TCPConn) error {
		if err := connection.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		answer := make([]byte, 5)
		if _, err := connection.Write([]byte("hello")); err != nil {
			return err
		}
		_, err := io.ReadFull(connection, answer)
		return err
	}
	for name, dialer := range dialers {
		t.Run(name+", at once", func(t *testing.T) {
			forwarder := forward(t, dialer(t, subresource(t, ns, "portforward", nil)), "0:7")
			var group sync.WaitGroup
			var failures atomic.Int32
			for range 100 {
				connection := forwarder.dial(t, 7)
				group.Go(func() {
					if ask(connection) != nil {
						failures.Add(1)
					}
				})
			}
			group.Wait()
			if failures.Load() > 0 {
				t.Errorf("%d of 100 connections have no answer", failures.Load())
			}
		})
		t.Run(name+", one after the other", func(t *testing.T) {
			forwarder := forward(t, dialer(t, subresource(t, ns, "portforward", nil)), "0:7")
			var open []*net.TCPConn
			for i := range 200 {
				open = append(open, forwarder.dial(t, 7))
				if err := ask(open[i]); err != nil {
					t.Errorf("connection %d: %v", i, err)
					break
				}
			}
			for range 20 {
				open = append(open, forwarder.dial(t, 7))
			}
			for _, connection := range open {
				connection.Close()
			}
			if err := ask(forwarder.dial(t, 7)); err != nil {
				t.Errorf("after the end of all others: %v", err)
			}
		})
	}
}
