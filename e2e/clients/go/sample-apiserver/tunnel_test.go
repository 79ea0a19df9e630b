package sampleapiserver

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"coracle.dev/clients/go/coracletest/restconfig"
	"coracle.dev/e2e/clients/go/processes"
)

const tunnelManifests = `
apiVersion: v1
kind: Service
metadata:
  name: api
  namespace: wardle
  annotations: {coracle.dev/service-url: "https://%s"}
spec: {ports: [{port: 443}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.echo.example.com}
spec:
  group: echo.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  caBundle: %s
  service: {namespace: wardle, name: api}
`

// serveEcho serves a group whose connections echo what they get, once they have switched protocols.
func serveEcho(response http.ResponseWriter, request *http.Request) {
	if request.URL.Path == "/apis/echo.example.com/v1" {
		response.Header().Set("Content-Type", "application/json")
		fmt.Fprint(response, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"echo.example.com/v1","resources":[]}`)
		return
	}
	if request.Header.Get("Upgrade") == "" {
		http.Error(response, "no upgrade", http.StatusBadRequest)
		return
	}
	connection, buffered, err := response.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer connection.Close()
	fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-User: %s\r\n\r\n",
		request.Header.Get("Upgrade"), request.Header.Get("X-Remote-User"))
	_, _ = io.Copy(connection, buffered)
}

func TestConnectionsThatSwitchProtocolsAreTunnels(t *testing.T) {
	config := restconfig.Start(t, "--controllers=-*")
	ca, certificate, key := serving(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(serveEcho), TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
	go func() { _ = server.ServeTLS(listener, certificate, key) }()
	t.Cleanup(func() { _ = server.Close() })

	objects := processes.NewObjects(t, config)
	objects.Create(t, processes.Read(t, []byte("{apiVersion: v1, kind: Namespace, metadata: {name: wardle}}"))...)
	manifests := fmt.Sprintf(tunnelManifests, listener.Addr(), base64.StdEncoding.EncodeToString(ca))
	objects.Create(t, processes.Read(t, []byte(manifests))...)
	apiServices := objects.In("", "apiregistration.k8s.io", "v1", "apiservices")
	processes.WaitForConditions(t, apiServices, "v1.echo.example.com", "Available")

	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		connection := dial(t, config)
		fmt.Fprintf(connection, "POST /apis/echo.example.com/v1/namespaces/default/echoes/a/exec HTTP/1.1\r\nHost: x\r\n"+
			"Connection: Upgrade\r\nUpgrade: %s\r\nContent-Length: 0\r\n\r\n", protocol)
		reader := bufio.NewReader(connection)
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != protocol {
			t.Fatalf("%s: %v", protocol, response)
		}
		if user := response.Header.Get("X-User"); user == "" {
			t.Errorf("%s: the server does not know the user", protocol)
		}
		sent := strings.Repeat("0123456789", 10_000)
		go func() { _, _ = io.WriteString(connection, sent) }()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(reader, got); err != nil || string(got) != sent {
			t.Errorf("%s: what comes back is something else: %v", protocol, err)
		}
	}
}

// dial connects as the administrator, over HTTP/1.1.
func dial(t *testing.T, config *rest.Config) net.Conn {
	t.Helper()
	host, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	configuration.NextProtos = []string{"http/1.1"}
	connection, err := tls.Dial("tcp", host.Host, configuration)
	if err != nil {
		t.Fatal(err)
	}
	if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}
