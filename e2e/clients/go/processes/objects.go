package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	deadline = time.Minute
	interval = 50 * time.Millisecond
)

// Eventually waits until a condition holds; describe says what it found last. The test fails if it never does.
func Eventually(t testing.TB, what string, condition func(context.Context) (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	found := ""
	for {
		var done bool
		if done, found = condition(ctx); done {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s; found: %s", deadline, what, found)
		case <-time.After(interval):
		}
	}
}

// KubeconfigOf writes a kubeconfig with a token of a ServiceAccount, and returns its path.
func KubeconfigOf(t testing.TB, config *rest.Config, namespace, name string) string {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	token, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	file.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Objects creates, finds and deletes objects of any kind.
type Objects struct {
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

// NewObjects returns the objects of a control plane.
func NewObjects(t testing.TB, config *rest.Config) *Objects {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &Objects{dynamic: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(documents))}
}

// In returns a resource, in a namespace unless that is empty.
func (o *Objects) In(namespace, group, version, resource string) dynamic.ResourceInterface {
	all := o.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	if namespace == "" {
		return all
	}
	return all.Namespace(namespace)
}

// Read returns the objects in a YAML text.
func Read(t testing.TB, text []byte) []*unstructured.Unstructured {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// ReadFiles returns the objects in the YAML files that match a pattern.
func ReadFiles(t testing.TB, pattern string) []*unstructured.Unstructured {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no files (%v)", pattern, err)
	}
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, Read(t, text)...)
	}
	return objects
}

// resource returns where objects of its kind are; the kind may just have been defined.
func (o *Objects) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := o.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		o.mapper.Reset()
		return nil, err
	}
	all := o.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == "namespace" {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		return all.Namespace(namespace), nil
	}
	return all, nil
}

// Create creates objects, once their kinds are served.
func (o *Objects) Create(t testing.TB, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		what := object.GetKind() + " " + object.GetName()
		Eventually(t, what+" is created", func(ctx context.Context) (bool, string) {
			resource, err := o.resource(object)
			if err != nil {
				return false, err.Error()
			}
			_, err = resource.Create(ctx, object, metav1.CreateOptions{})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInternalError(err) {
				t.Fatalf("%s: %v", what, err)
			}
			return err == nil, fmt.Sprint(err)
		})
	}
}

// Delete deletes objects, and waits until they are gone.
func (o *Objects) Delete(t testing.TB, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		resource, err := o.resource(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := resource.Delete(t.Context(), object.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	for _, object := range objects {
		Eventually(t, object.GetKind()+" "+object.GetName()+" is gone", func(ctx context.Context) (bool, string) {
			resource, err := o.resource(object)
			if err != nil {
				return true, err.Error()
			}
			found, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(found, err)
		})
	}
}

// WaitForConditions waits until conditions in an object's status are True, and returns the object.
func WaitForConditions(t testing.TB, resource dynamic.ResourceInterface, name string, types ...string) *unstructured.Unstructured {
	t.Helper()
	var object *unstructured.Unstructured
	Eventually(t, fmt.Sprintf("%s has the conditions %v", name, types), func(ctx context.Context) (bool, string) {
		var err error
		object, err = resource.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, kind := range types {
			if Condition(object, kind) != "True" {
				return false, fmt.Sprint(object.Object["status"])
			}
		}
		return true, ""
	})
	return object
}

// Condition returns the status of a condition.
func Condition(object *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if members, ok := condition.(map[string]any); ok && members["type"] == kind {
			status, _ := members["status"].(string)
			return status
		}
	}
	return ""
}
