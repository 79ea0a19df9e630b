package contenttypes

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// do sends a plain request with the credentials of the configuration; nothing is added to it or decoded.
func do(t *testing.T, method, path string, header map[string]string, content []byte) *http.Response {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(testContext(t), method, config.Host+path, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func TestErrorsAreTheSameInEachType(t *testing.T) {
	const maps = "/api/v1/namespaces/default/configmaps"
	for _, test := range []struct {
		method, path, content string
		code                  int
	}{
		{"GET", maps + "/none", "", http.StatusNotFound},
		{"GET", maps + "?labelSelector=a+in+(", "", http.StatusBadRequest},
		{"GET", maps + "?limit=1&continue=x", "", http.StatusBadRequest},
		{"GET", maps + "?resourceVersion=x", "", http.StatusBadRequest},
		{"GET", maps + "?resourceVersion=999999999&resourceVersionMatch=Exact", "", http.StatusGatewayTimeout},
		{"DELETE", maps + "/none", "", http.StatusNotFound},
		{"POST", maps, `{"metadata":{"name":"A b"},"data":{"a b":"c"}}`, http.StatusUnprocessableEntity},
		{"POST", maps, `{"kind":"Secret"}`, http.StatusBadRequest},
		{"POST", "/api/v1/namespaces/none/configmaps", `{"metadata":{"name":"a"}}`, http.StatusNotFound},
		{"PUT", maps + "/none", `{"metadata":{"name":"none"}}`, http.StatusNotFound},
	} {
		var responses []runtime.Object
		for _, contentType := range []string{jsonType, protobufType} {
			header := map[string]string{"Accept": contentType, "Content-Type": jsonType}
			response := do(t, test.method, test.path, header, []byte(test.content))
			if response.StatusCode != test.code || response.Header.Get("Content-Type") != contentType {
				t.Errorf("%s %s: %s %s", test.method, test.path, response.Status, response.Header.Get("Content-Type"))
			}
			decoded, _, err := codecs.UniversalDeserializer().Decode(body(t, response), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			decoded.(*metav1.Status).TypeMeta = metav1.TypeMeta{}
			responses = append(responses, decoded)
		}
		identical(t, test.method+" "+test.path, responses[0], responses[1])
	}
}

func TestDamagedProtobufIsABadRequest(t *testing.T) {
	object := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "whole"},
		Data:       map[string]string{"a": strings.Repeat("b", 100)},
	}
	whole := encode(t, object, protobufType)
	header := map[string]string{"Accept": jsonType, "Content-Type": protobufType}
	for end := range len(whole) {
		response := do(t, "POST", "/api/v1/namespaces/default/configmaps?dryRun=All", header, whole[:end])
		content := body(t, response)
		// A body that ends between two fields is valid but lacks some: the published types decode it too.
		_, _, err := codecs.UniversalDeserializer().Decode(whole[:end], nil, nil)
		if response.StatusCode != http.StatusBadRequest && (err != nil || response.StatusCode >= 500) {
			t.Errorf("%d of %d bytes: %s %s", end, len(whole), response.Status, content)
		}
	}
}

// CBOR is behind a feature gate that is off by default: it is refused, and clients that can do without get JSON.
func TestCBORIsAnsweredAsByDefault(t *testing.T) {
	const cbor = "application/cbor"
	const maps = "/api/v1/namespaces/default/configmaps"
	for _, test := range []struct {
		method, accept, contentType string
		code                        int
		answer                      string
	}{
		{"GET", cbor, "", http.StatusNotAcceptable, "application/json"},
		{"GET", cbor + "," + jsonType, "", http.StatusOK, jsonType},
		{"GET", cbor + "," + protobufType, "", http.StatusOK, protobufType},
		{"POST", jsonType, cbor, http.StatusUnsupportedMediaType, jsonType},
	} {
		response := do(t, test.method, maps, map[string]string{"Accept": test.accept, "Content-Type": test.contentType}, []byte("\xd9\xd9\xf7\xa0"))
		content := body(t, response)
		if response.StatusCode != test.code || !strings.HasPrefix(response.Header.Get("Content-Type"), test.answer) && test.code != http.StatusNotAcceptable {
			t.Errorf("%s, %s of %s: %s, %s", test.method, test.accept, test.contentType, response.Status, response.Header.Get("Content-Type"))
		}
		if test.code >= 400 && strings.Contains(string(content), "application/cbor") {
			t.Errorf("offered: %s", content)
		}
	}
	// client-go falls back by itself.
	c := rest.CopyConfig(config)
	c.ContentType = protobufType
	c.AcceptContentTypes = strings.Join([]string{cbor, protobufType, jsonType}, ",")
	clients, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().ConfigMaps("default").Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func TestLongResponsesAreCompressedOnRequest(t *testing.T) {
	ctx := testContext(t)
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("long-%d", i), Labels: map[string]string{"suite": "gzip"}},
			Data:       map[string]string{"text": strings.Repeat("words ", 2000)},
		}
		if _, err := clients.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, accept := range []string{jsonType, protobufType} {
		const path = "/api/v1/namespaces/default/configmaps?labelSelector=suite%3Dgzip"
		plain := do(t, "GET", path, map[string]string{"Accept": accept, "Accept-Encoding": "identity"}, nil)
		want := body(t, plain)
		compressed := do(t, "GET", path, map[string]string{"Accept": accept, "Accept-Encoding": "gzip"}, nil)
		got := body(t, compressed)
		if plain.Header.Get("Content-Encoding") != "" || compressed.Header.Get("Content-Encoding") != "gzip" || len(got)*5 > len(want) {
			t.Errorf("%s: %d and %d bytes, %q", accept, len(want), len(got), compressed.Header.Get("Content-Encoding"))
		}
		reader, err := gzip.NewReader(bytes.NewReader(got))
		if err != nil {
			t.Fatal(err)
		}
		unpacked, err := io.ReadAll(reader)
		if err != nil || !bytes.Equal(unpacked, want) {
			t.Errorf("%s: %v", accept, err)
		}
		short := do(t, "GET", path+"&limit=1", map[string]string{"Accept": accept, "Accept-Encoding": "gzip"}, nil)
		body(t, short)
		if short.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: a short response is compressed", accept)
		}
	}
	if err := clients.CoreV1().ConfigMaps("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "suite=gzip"}); err != nil {
		t.Fatal(err)
	}
}
