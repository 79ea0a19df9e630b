// Package contenttypes proves that JSON and protobuf say the same of every built-in kind, with the published Go types.
package contenttypes

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/discovery"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"

	"coracle.dev/clients/go/coracletest"
	"coracle.dev/clients/go/coracletest/restconfig"
)

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
	deadline     = time.Minute
)

//go:embed objects.yaml
var objectsYAML string

var (
	config *rest.Config
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
	kinds  []kind
)

// kind is a built-in kind, its resource, and an object of it.
type kind struct {
	schema.GroupVersionKind
	resource     metav1.APIResource
	hasStatus    bool
	subresources []string
	sample       runtime.Object
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	// Nothing but the tests writes. A fuzzed object is not for RBAC to judge.
	controlPlane, err := coracletest.New("--nodes=0", "--controllers=", "--default-storage-class=none",
		"--disable-admission-plugins=ServiceAccount,LimitRanger,ResourceQuota,Priority,RuntimeClass,StorageObjectInUseProtection,PodSecurity")
	if err != nil {
		return 1, err
	}
	defer controlPlane.Stop()
	if config, err = restconfig.Of(controlPlane); err != nil {
		return 1, err
	}
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if kinds, err = discover(); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// discover lists the kinds that can be created and read, each with its sample.
func discover() ([]kind, error) {
	samples, err := parseSamples()
	if err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	var found []kind
	for _, list := range lists {
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") {
				// They follow their resource.
				if last := len(found) - 1; last >= 0 && resource.Name == found[last].resource.Name+"/status" {
					found[last].hasStatus = true
				}
				continue
			}
			verbs := metav1.Verbs(resource.Verbs).String()
			gvk := groupVersion.WithKind(resource.Kind)
			sample := samples[gvk]
			if strings.Contains(verbs, "create") && strings.Contains(verbs, "get") {
				if sample == nil {
					// The older version of a kind.
					if groupVersion.String() == "autoscaling/v1" {
						continue
					}
					return nil, fmt.Errorf("objects.yaml has no %v", gvk)
				}
				found = append(found, kind{GroupVersionKind: gvk, resource: resource, sample: sample})
			}
		}
	}
	return found, nil
}

func parseSamples() (map[schema.GroupVersionKind]runtime.Object, error) {
	request, err := certificateRequest()
	if err != nil {
		return nil, err
	}
	samples := map[schema.GroupVersionKind]runtime.Object{}
	for _, text := range strings.Split(strings.Replace(objectsYAML, "REQUEST", request, 1), "\n---\n") {
		// The decoder would take YAML in braces for JSON.
		content, err := yaml.YAMLToJSONStrict([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, text)
		}
		object, gvk, err := codecs.UniversalDeserializer().Decode(content, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, text)
		}
		samples[*gvk] = object
	}
	return samples, nil
}

func certificateRequest() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}
	request, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return "", err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
	return base64.StdEncoding.EncodeToString(block), nil
}

// client speaks one content type, in both directions.
func client(t *testing.T, k kind, contentType string) *rest.RESTClient {
	t.Helper()
	c := rest.CopyConfig(config)
	groupVersion := k.GroupVersion()
	c.GroupVersion = &groupVersion
	c.APIPath = "/apis"
	if k.Group == "" {
		c.APIPath = "/api"
	}
	c.ContentType = contentType
	c.AcceptContentTypes = contentType
	c.NegotiatedSerializer = codecs.WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// at sets the path of the kind's collection.
func (k kind) at(request *rest.Request) *rest.Request {
	return request.NamespaceIfScoped(metav1.NamespaceDefault, k.resource.Namespaced).Resource(k.resource.Name)
}

func (k kind) String() string {
	if k.Group == "" {
		return k.Version + " " + k.Kind
	}
	return k.Group + " " + k.Version + " " + k.Kind
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// encode encodes an object as JSON or protobuf, with the published types.
func encode(t *testing.T, object runtime.Object, contentType string) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), contentType)
	if !ok {
		t.Fatalf("no serializer of %s", contentType)
	}
	var buffer bytes.Buffer
	if err := info.Serializer.Encode(object, &buffer); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}
