package contenttypes

import (
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"reflect"
	"regexp"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/randfill"
)

// rounds is how many random objects of each kind are compared.
const rounds = 15

// opaque replaces contents that are JSON themselves.
func opaque(serializer.CodecFactory) []any {
	const text = `{"a":[1,"b"]}`
	return []any{
		func(j *runtime.RawExtension, _ randfill.Continue) { *j = runtime.RawExtension{Raw: []byte(text)} },
		func(j *apiextensionsv1.JSON, _ randfill.Continue) { *j = apiextensionsv1.JSON{Raw: []byte(text)} },
		func(j *metav1.FieldsV1, _ randfill.Continue) { *j = *metav1.NewFieldsV1(`{"f:a":{}}`) },
		// These say in JSON only one of what they hold.
		func(j *apiextensionsv1.JSONSchemaPropsOrArray, _ randfill.Continue) {
			*j = apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}
		},
		func(j *apiextensionsv1.JSONSchemaPropsOrBool, _ randfill.Continue) {
			*j = apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}
		},
		func(j *apiextensionsv1.JSONSchemaPropsOrStringArray, _ randfill.Continue) {
			*j = apiextensionsv1.JSONSchemaPropsOrStringArray{Property: []string{"a"}}
		},
		func(j *apiextensionsv1.JSONSchemaProps, c randfill.Continue) {
			*j = apiextensionsv1.JSONSchemaProps{Type: c.String(8), Title: c.String(8)}
		},
	}
}

// settle brings an object to what both types can say: an empty list is no list to protobuf.
func settle(t *testing.T, object runtime.Object) runtime.Object {
	t.Helper()
	for _, contentType := range []string{protobufType, jsonType, protobufType} {
		decoded, _, err := codecs.UniversalDeserializer().Decode(encode(t, object, contentType), nil, nil)
		if err != nil {
			t.Fatalf("%v: %v", contentType, err)
		}
		object = decoded
	}
	return object
}

// The allowed differences of two objects of the same content, and of responses about them.
var (
	times       = regexp.MustCompile(`"(uid|creationTimestamp|time|resourceVersion|clusterIP)":"[^"]*"`)
	identities  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	transitions = regexp.MustCompile(`"lastTransitionTime":"[^"]*"`)
	allocations = regexp.MustCompile(`"nodePort":[0-9]+|"clusterIPs":\[[^]]*\]`)
)

// anonymous is a JSON text without these.
func anonymous(text []byte) string {
	text = times.ReplaceAll(text, []byte(`"$1":""`))
	text = identities.ReplaceAll(text, []byte("UID"))
	return string(allocations.ReplaceAll(text, nil))
}

// post creates an object with a dry run, and returns the code and the response as JSON.
func post(t *testing.T, k kind, object runtime.Object, contentType string) (int, string) {
	t.Helper()
	request := k.at(client(t, k, contentType).Post()).Param("dryRun", "All").SetHeader("Accept", jsonType).Body(object)
	var code int
	raw, _ := request.Do(testContext(t)).StatusCode(&code).Raw()
	return code, anonymous(raw)
}

func TestRandomObjectsGetTheSameResponseInEachType(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			codes := map[int]int{}
			for seed := range int64(rounds) {
				fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, opaque), rand.NewSource(seed), codecs)
				object := reflect.New(reflect.TypeOf(k.sample).Elem()).Interface().(runtime.Object)
				// Each round is filled more: what is nearly empty passes more of the validation.
				fill.NilChance(0.8-0.05*float64(seed)).NumElements(1, 2).MaxDepth(12).Fill(object)
				accessor, err := meta.Accessor(object)
				if err != nil {
					t.Fatal(err)
				}
				ours, err := meta.Accessor(k.sample)
				if err != nil {
					t.Fatal(err)
				}
				// Valid metadata lets more of the rest be looked at.
				accessor.SetName(ours.GetName())
				accessor.SetNamespace(map[bool]string{true: metav1.NamespaceDefault}[k.resource.Namespaced])
				accessor.SetGenerateName("")
				accessor.SetOwnerReferences(nil)
				accessor.SetFinalizers(nil)
				accessor.SetLabels(ours.GetLabels())
				accessor.SetAnnotations(nil)
				accessor.SetManagedFields(nil)
				accessor.SetResourceVersion("")
				accessor.SetUID("")
				accessor.SetDeletionTimestamp(nil)
				object.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
				object = settle(t, object)
				jsonCode, asJSON := post(t, k, object, jsonType)
				protobufCode, asProtobuf := post(t, k, object, protobufType)
				codes[jsonCode]++
				if jsonCode != protobufCode || asJSON != asProtobuf {
					t.Fatalf("seed %d: %d as JSON, %d as protobuf\n%s\n%s\n%s", seed, jsonCode, protobufCode, encode(t, object, jsonType), asJSON, asProtobuf)
				}
				if jsonCode >= 500 || jsonCode == http.StatusBadRequest {
					t.Fatalf("seed %d: %d %s\n%s", seed, jsonCode, asJSON, encode(t, object, jsonType))
				}
			}
			t.Logf("%v", codes)
		})
	}
}

func TestRandomStatusesAreReadAlikeInEachType(t *testing.T) {
	for _, k := range kinds {
		// The server itself writes the other statuses.
		if !k.hasStatus || !written(k.sample) {
			continue
		}
		t.Run(k.String(), func(t *testing.T) {
			ctx := testContext(t)
			asJSON, asProtobuf := client(t, k, jsonType), client(t, k, protobufType)
			sample := k.sample.DeepCopyObject()
			accessor, err := meta.Accessor(sample)
			if err != nil {
				t.Fatal(err)
			}
			created := sample.DeepCopyObject()
			if err := k.at(asJSON.Post()).Body(sample).Do(ctx).Into(created); err != nil {
				t.Fatal(err)
			}
			defer func() {
				options := &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
				if err := k.at(asJSON.Delete()).Name(accessor.GetName()).Body(options).Do(ctx).Error(); err != nil {
					t.Error(err)
				}
				finalize(t, k, accessor.GetName())
			}()
			stored := 0
			for seed := range int64(rounds) {
				fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, opaque), rand.NewSource(seed), codecs)
				random := reflect.New(reflect.TypeOf(k.sample).Elem())
				fill.NilChance(0.8-0.05*float64(seed)).NumElements(1, 2).MaxDepth(12).Fill(random.Interface())
				current := sample.DeepCopyObject()
				if err := k.at(asProtobuf.Get()).Name(accessor.GetName()).Do(ctx).Into(current); err != nil {
					t.Fatal(err)
				}
				status := reflect.ValueOf(current).Elem().FieldByName("Status")
				if !status.IsValid() {
					t.Fatal("no status")
				}
				status.Set(random.Elem().FieldByName("Status"))
				current.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
				current = settle(t, current)
				write := asJSON
				if seed%2 == 1 {
					write = asProtobuf
				}
				if err := k.at(write.Put()).Name(accessor.GetName()).SubResource("status").Body(current).Do(ctx).Error(); err != nil {
					continue
				}
				stored++
				reads := [2]runtime.Object{sample.DeepCopyObject(), sample.DeepCopyObject()}
				for i, client := range []*rest.RESTClient{asJSON, asProtobuf} {
					if err := k.at(client.Get()).Name(accessor.GetName()).Do(ctx).Into(reads[i]); err != nil {
						t.Fatal(err)
					}
				}
				identical(t, fmt.Sprintf("seed %d", seed), reads[0], reads[1])
			}
			t.Logf("%d of %d stored", stored, rounds)
		})
	}
}

// body reads a response as bytes.
func body(t *testing.T, response *http.Response) []byte {
	t.Helper()
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return read
}
