package contenttypes

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// same compares two objects of the same content.
func same(t *testing.T, what string, a, b runtime.Object) {
	t.Helper()
	content := func(object runtime.Object) string {
		return anonymous(transitions.ReplaceAll(encode(t, object, jsonType), nil))
	}
	if a, b := content(a), content(b); a != b {
		t.Errorf("%s: %s", what, diff.Diff(a, b))
	}
}

// identical compares two readings of one object.
func identical(t *testing.T, what string, a, b runtime.Object) {
	t.Helper()
	for _, object := range []runtime.Object{a, b} {
		switch object := object.(type) {
		case *appsv1.StatefulSet:
			untyped(object)
		case *appsv1.StatefulSetList:
			for i := range object.Items {
				untyped(&object.Items[i])
			}
		}
	}
	if !equality.Semantic.DeepEqual(a, b) {
		t.Errorf("%s: %s", what, diff.Diff(a, b))
	}
}

// untyped removes the kinds of templates, of which only JSON says what they are.
func untyped(set *appsv1.StatefulSet) {
	for i := range set.Spec.VolumeClaimTemplates {
		set.Spec.VolumeClaimTemplates[i].TypeMeta = metav1.TypeMeta{}
	}
}

// written reports whether the server, which writes the statuses of some kinds by itself, has written that of an object.
func written(object runtime.Object) bool {
	switch object := object.(type) {
	case *apiextensionsv1.CustomResourceDefinition:
		return len(object.Status.StoredVersions) > 0 && len(object.Status.Conditions) > 1
	case *apiregistrationv1.APIService:
		return len(object.Status.Conditions) > 0
	case *flowcontrolv1.FlowSchema:
		return len(object.Status.Conditions) > 0
	}
	return true
}

// settled waits until the server has written the status of an object, after which only the test changes it.
func settled(t *testing.T, read func() runtime.Object) runtime.Object {
	t.Helper()
	ctx := testContext(t)
	for {
		object := read()
		if written(object) {
			return object
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the server does not write the status: %v", object)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestEveryKindCrossesFromEachTypeToTheOther(t *testing.T) {
	if len(kinds) < 55 {
		t.Errorf("%d kinds", len(kinds))
	}
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) { crosses(t, k) })
	}
}

func crosses(t *testing.T, k kind) {
	ctx := testContext(t)
	asJSON, asProtobuf := client(t, k, jsonType), client(t, k, protobufType)
	accessor, err := meta.Accessor(k.sample)
	if err != nil {
		t.Fatal(err)
	}
	name := accessor.GetName()
	fresh := func() runtime.Object {
		return reflect.New(reflect.TypeOf(k.sample).Elem()).Interface().(runtime.Object)
	}
	read := func(client *rest.RESTClient) runtime.Object {
		t.Helper()
		object := fresh()
		if err := k.at(client.Get()).Name(name).Do(ctx).Into(object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	listed := func(client *rest.RESTClient) runtime.Object {
		t.Helper()
		list, err := k.at(client.Get()).Do(ctx).Get()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}

	before, err := meta.ListAccessor(listed(asProtobuf))
	if err != nil {
		t.Fatal(err)
	}
	watchFrom := func(client *rest.RESTClient) watch.Interface {
		t.Helper()
		options := &metav1.ListOptions{Watch: true, ResourceVersion: before.GetResourceVersion(), AllowWatchBookmarks: true}
		events, err := k.at(client.Get()).VersionedParams(options, metav1.ParameterCodec).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(events.Stop)
		return events
	}
	watches := []watch.Interface{watchFrom(asJSON), watchFrom(asProtobuf)}

	var first runtime.Object
	for _, way := range []struct {
		name             string
		write, otherRead *rest.RESTClient
	}{{"protobuf to JSON", asProtobuf, asJSON}, {"JSON to protobuf", asJSON, asProtobuf}} {
		created := fresh()
		if err := k.at(way.write.Post()).Body(k.sample).Do(ctx).Into(created); err != nil {
			t.Fatalf("%s: %v", way.name, err)
		}
		if !written(created) {
			created = settled(t, func() runtime.Object { return read(way.write) })
		}
		identical(t, way.name+", created and read", created, read(way.otherRead))
		identical(t, way.name+", created and read again", created, read(way.write))
		if first == nil {
			first = created
		} else {
			same(t, "created by both", first, created)
		}
		identical(t, "lists", listed(asJSON), listed(asProtobuf))

		// An update by the other type.
		changed := read(way.otherRead)
		changedMeta, err := meta.Accessor(changed)
		if err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{"changed": "yes"}
		for key, value := range changedMeta.GetLabels() {
			labels[key] = value
		}
		changedMeta.SetLabels(labels)
		updated := fresh()
		if err := k.at(way.otherRead.Put()).Name(name).Body(changed).Do(ctx).Into(updated); err != nil {
			t.Fatalf("%s, updated: %v", way.name, err)
		}
		identical(t, way.name+", updated", updated, read(way.write))

		metadata(t, k, name)
		table(t, k, name)

		// Deleted with options of this type.
		options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(changedMeta.GetUID())}, GracePeriodSeconds: new(int64(0))}
		if err := k.at(way.write.Delete()).Name(name).Body(options).Do(ctx).Error(); err != nil {
			t.Fatalf("%s, deleted: %v", way.name, err)
		}
		finalize(t, k, name)
		if err := k.at(way.otherRead.Get()).Name(name).Do(ctx).Error(); !apierrors.IsNotFound(err) {
			t.Fatalf("%s, deleted: %v", way.name, err)
		}
	}

	// Both watches have seen the same, up to the second deletion.
	for deleted := 0; deleted < 2; {
		asJSON, asProtobuf := next(t, watches[0]), next(t, watches[1])
		if asJSON.Type != asProtobuf.Type {
			t.Fatalf("%v and %v", asJSON, asProtobuf)
		}
		identical(t, "watched", asJSON.Object, asProtobuf.Object)
		if asJSON.Type == watch.Deleted {
			deleted++
		}
	}
}

// next is the next event of a watch that is no bookmark.
func next(t *testing.T, events watch.Interface) watch.Event {
	t.Helper()
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open || event.Type == watch.Error {
				t.Fatalf("a watch ended: %v", event)
			}
			if event.Type != watch.Bookmark {
				return event
			}
		case <-testContext(t).Done():
			t.Fatal("no event")
		}
	}
}

// finalize removes the finalizers of an object that is still there after its deletion.
func finalize(t *testing.T, k kind, name string) {
	t.Helper()
	ctx := testContext(t)
	asJSON := client(t, k, jsonType)
	var err error
	if k.Kind == "Namespace" {
		namespace := &corev1.Namespace{}
		if err = k.at(asJSON.Get()).Name(name).Do(ctx).Into(namespace); err == nil {
			namespace.Spec.Finalizers = nil
			err = k.at(asJSON.Put()).Name(name).SubResource("finalize").Body(namespace).Do(ctx).Error()
		}
	} else {
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		err = k.at(asJSON.Patch(types.MergePatchType)).Name(name).Body(patch).Do(ctx).Error()
	}
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// metadata compares both types of PartialObjectMetadata, of one object and of a list.
func metadata(t *testing.T, k kind, name string) {
	t.Helper()
	ctx := testContext(t)
	for _, test := range []struct {
		as   string
		name string
		into [2]runtime.Object
	}{
		{"PartialObjectMetadata", name, [2]runtime.Object{&metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{}}},
		{"PartialObjectMetadataList", "", [2]runtime.Object{&metav1.PartialObjectMetadataList{}, &metav1.PartialObjectMetadataList{}}},
	} {
		for i, contentType := range []string{jsonType, protobufType} {
			request := k.at(client(t, k, contentType).Get()).SetHeader("Accept", contentType+";as="+test.as+";g=meta.k8s.io;v=v1")
			if test.name != "" {
				request = request.Name(test.name)
			}
			if err := request.Do(ctx).Into(test.into[i]); err != nil {
				t.Fatalf("%s as %s: %v", test.as, contentType, err)
			}
			// JSON says the kind of each object again; protobuf says that of the whole only.
			switch object := test.into[i].(type) {
			case *metav1.PartialObjectMetadata:
				object.TypeMeta = metav1.TypeMeta{}
			case *metav1.PartialObjectMetadataList:
				object.TypeMeta = metav1.TypeMeta{}
				for j := range object.Items {
					object.Items[j].TypeMeta = metav1.TypeMeta{}
				}
			}
		}
		identical(t, test.as, test.into[0], test.into[1])
	}
}

// table reads a table, which is never protobuf, beside objects which are.
func table(t *testing.T, k kind, name string) {
	t.Helper()
	ctx := testContext(t)
	asProtobuf := client(t, k, protobufType)
	const tables = "application/json;as=Table;g=meta.k8s.io;v=v1"
	raw, err := k.at(asProtobuf.Get()).Name(name).SetHeader("Accept", tables+","+protobufType).Do(ctx).Raw()
	if err != nil {
		t.Fatal(err)
	}
	got := &metav1.Table{}
	if err := json.Unmarshal(raw, got); err != nil || len(got.Rows) != 1 || len(got.Rows[0].Cells) < len(got.ColumnDefinitions) || !strings.Contains(string(got.Rows[0].Object.Raw), `"name":"`+name+`"`) {
		t.Errorf("table: %v, %s", err, raw)
	}
	err = k.at(asProtobuf.Get()).Name(name).SetHeader("Accept", protobufType+";as=Table;g=meta.k8s.io;v=v1").Do(ctx).Error()
	if !apierrors.IsNotAcceptable(err) {
		t.Errorf("a table as protobuf: %v", err)
	}
}
