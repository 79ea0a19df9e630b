// Package sampleapiserver runs the real sample-apiserver, built from its published module with a real etcd in this process, behind
// Coracle: an extension API server with delegated authentication and authorization, whose manifests are its own.
package sampleapiserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"coracle.dev/clients/go/coracletest"
	"coracle.dev/clients/go/coracletest/restconfig"
	"coracle.dev/e2e/clients/go/processes"
)

const (
	module  = "k8s.io/sample-apiserver"
	group   = "wardle.example.com"
	service = "api.wardle.svc"
	name    = "v1alpha1.wardle.example.com"
)

// The permissions that the manifests lack: reads of the admission policies by the library.
const policies = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: wardle-policies}
rules:
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingadmissionpolicies, mutatingadmissionpolicybindings]
  verbs: [get, watch, list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: wardle-policies}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: wardle-policies}
subjects: [{kind: ServiceAccount, name: apiserver, namespace: wardle}]
`

func TestAnExtensionServerIsServedBehindTheControlPlane(t *testing.T) {
	program := processes.Build(t, module)
	manifests := filepath.Join(processes.ModuleDirectory(t, module), "artifacts", "example")
	controlPlane := coracletest.Start(t)
	config, err := restconfig.Of(controlPlane)
	if err != nil {
		t.Fatal(err)
	}
	objects := processes.NewObjects(t, config)
	for _, file := range []string{"ns", "sa", "rbac", "rbac-bind", "auth-delegator", "auth-reader"} {
		objects.Create(t, processes.ReadFiles(t, filepath.Join(manifests, file+".yaml"))...)
	}
	objects.Create(t, processes.Read(t, []byte(policies))...)
	ca, certificate, key := serving(t)
	port := processes.FreePort(t)
	kubeconfig := processes.KubeconfigOf(t, config, "wardle", "apiserver")
	server := processes.Start(t, "sample-apiserver", nil, program,
		"--etcd-servers="+startEtcd(t), fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1",
		"--tls-cert-file="+certificate, "--tls-private-key-file="+key, "--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)

	// Its Service selects pods that nobody made: the annotation says where the server is.
	endpoint := processes.ReadFiles(t, filepath.Join(manifests, "service.yaml"))
	endpoint[0].SetAnnotations(map[string]string{"coracle.dev/service-url": fmt.Sprintf("https://127.0.0.1:%d", port)})
	objects.Create(t, endpoint...)
	api := processes.ReadFiles(t, filepath.Join(manifests, "apiservice.yaml"))[0]
	spec := api.Object["spec"].(map[string]any)
	delete(spec, "insecureSkipTLSVerify")
	spec["caBundle"] = base64.StdEncoding.EncodeToString(ca)
	objects.Create(t, api)
	apiServices := objects.In("", "apiregistration.k8s.io", "v1", "apiservices")
	processes.WaitForConditions(t, apiServices, name, "Available")

	flunders := objects.In("default", group, "v1alpha1", "flunders")
	t.Run("objects", func(t *testing.T) { checkObjects(t, flunders) })
	t.Run("users", func(t *testing.T) { checkUsers(t, config, objects) })
	t.Run("discovery", func(t *testing.T) { checkDiscovery(t, config) })
	t.Run("kubectl", func(t *testing.T) { checkKubectl(t, controlPlane.KubeconfigFile) })

	// Without its server the API is unavailable, and everything else is not.
	server.Kill()
	processes.Eventually(t, "the APIService is not available", func(ctx context.Context) (bool, string) {
		found, err := apiServices.Get(ctx, name, metav1.GetOptions{})
		return err == nil && processes.Condition(found, "Available") == "False", fmt.Sprint(found, err)
	})
	if _, err := flunders.List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a list without a server: %v", err)
	}
	objects.Delete(t, api)
	if _, err := flunders.List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a list without an APIService: %v", err)
	}
}

func flunder(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": "Flunder",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}
}

func checkObjects(t *testing.T, flunders dynamic.ResourceInterface) {
	ctx := t.Context()
	events, err := flunders.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	created, err := flunders.Create(ctx, flunder("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := flunders.Create(ctx, flunder("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second object of the same name: %v", err)
	}
	created.SetLabels(map[string]string{"color": "red"})
	if _, err := flunders.Update(ctx, created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := flunders.Update(ctx, created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v", err)
	}
	list, err := flunders.List(ctx, metav1.ListOptions{LabelSelector: "color=red"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("the list: %v, %v", list, err)
	}
	if err := flunders.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		select {
		case event := <-events.ResultChan():
			if event.Type != want {
				t.Fatalf("%s instead of %s: %v", event.Type, want, event.Object)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no event %s", want)
		}
	}
}

// checkUsers checks that the extension server knows the user of a request by the front proxy's headers, and asks for their rights.
func checkUsers(t *testing.T, config *rest.Config, objects *processes.Objects) {
	alice := rest.CopyConfig(config)
	alice.Impersonate.UserName = "alice"
	client, err := dynamic.NewForConfig(alice)
	if err != nil {
		t.Fatal(err)
	}
	flunders := schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "flunders"}
	resource := client.Resource(flunders).Namespace("default")
	if _, err := resource.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "alice"`) {
		t.Errorf("without rights: %v", err)
	}
	objects.Create(t, processes.Read(t, []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: flunders, namespace: default}
rules: [{apiGroups: [wardle.example.com], resources: [flunders], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: flunders, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: flunders}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`))...)
	processes.Eventually(t, "alice may list", func(ctx context.Context) (bool, string) {
		_, err := resource.List(ctx, metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

func checkDiscovery(t *testing.T, config *rest.Config) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := clients.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, list := range lists {
		for _, resource := range list.APIResources {
			found = found || list.GroupVersion == group+"/v1alpha1" && resource.Name == "flunders"
		}
	}
	if !found {
		t.Error("discovery does not have the flunders")
	}
	const key = "apis/wardle.example.com/v1alpha1"
	processes.Eventually(t, "the index of OpenAPI has the group", func(context.Context) (bool, string) {
		paths, err := clients.Discovery().OpenAPIV3().Paths()
		if err != nil || paths[key] == nil {
			return false, fmt.Sprint(err)
		}
		text, err := paths[key].Schema("application/json")
		return err == nil && bytes.Contains(text, []byte("v1alpha1.Flunder")), fmt.Sprint(err)
	})
	processes.Eventually(t, "the document of version 2 has the group", func(ctx context.Context) (bool, string) {
		text, err := clients.RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return false, err.Error()
		}
		var document struct {
			Paths       map[string]json.RawMessage `json:"paths"`
			Definitions map[string]json.RawMessage `json:"definitions"`
		}
		if err := json.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
		_, path := document.Paths["/apis/wardle.example.com/v1alpha1/namespaces/{namespace}/flunders"]
		_, own := document.Paths["/apis/apps/v1/namespaces/{namespace}/deployments"]
		return path && own, fmt.Sprint(path, own)
	})
	// Old clients ask for protobuf, and find every reference resolved.
	if _, err := clients.Discovery().OpenAPISchema(); err != nil {
		t.Error(err)
	}
}

func checkKubectl(t *testing.T, kubeconfig string) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("no kubectl on the path")
	}
	kubectl := func(input string, arguments ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "kubectl", arguments...)
		command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir())
		command.Stdin = strings.NewReader(input)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
		return string(output)
	}
	// A text that begins with a brace would be JSON to kubectl.
	manifest := "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: b}\nspec: {}\n"
	kubectl(manifest, "create", "-f", "-")
	for _, want := range []struct {
		text      string
		arguments []string
	}{
		{"b ", []string{"get", "flunders"}},
		{"flunder.wardle.example.com/b labeled", []string{"label", "flunder", "b", "color=blue"}},
		{"flunders", []string{"api-resources", "--api-group=" + group}},
		{"VERSION:    v1alpha1", []string{"explain", "flunders.spec"}},
		{`"b" deleted`, []string{"delete", "flunder", "b"}},
	} {
		if output := kubectl("", want.arguments...); !strings.Contains(output, want.text) {
			t.Errorf("kubectl %v: %s", want.arguments, output)
		}
	}
}

// startEtcd starts an etcd in this process, and returns its URL.
func startEtcd(t *testing.T) string {
	t.Helper()
	listen := func() url.URL {
		return url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", processes.FreePort(t))}
	}
	configuration := embed.NewConfig()
	configuration.Dir = t.TempDir()
	configuration.LogLevel = "error"
	client, peer := listen(), listen()
	configuration.ListenClientUrls, configuration.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	configuration.ListenPeerUrls, configuration.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	configuration.InitialCluster = configuration.InitialClusterFromName(configuration.Name)
	etcd, err := embed.StartEtcd(configuration)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("etcd is not ready")
	}
	return client.String()
}

// serving makes a certificate for the Service, and returns the PEM text of its authority, and the paths of both files.
func serving(t *testing.T) (ca []byte, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: service}, DNSNames: []string{service},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	directory := t.TempDir()
	certificate, key = filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")
	files := map[string][]byte{certificate: ca, key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ca, certificate, key
}
