package clientgo

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	boats       = schema.GroupVersionResource{Group: "suite.coracle.dev", Version: "v1", Resource: "boats"}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

func boatDefinition() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "boats.suite.coracle.dev"},
		"spec": map[string]any{
			"group": "suite.coracle.dev", "scope": "Namespaced",
			"names": map[string]any{"plural": "boats", "singular": "boat", "kind": "Boat", "shortNames": []any{"bt"}},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{
						"spec": map[string]any{"type": "object", "required": []any{"seats"}, "properties": map[string]any{
							"seats":  map[string]any{"type": "integer", "minimum": int64(1)},
							"colour": map[string]any{"type": "string", "default": "black"},
						}},
						"status": map[string]any{"type": "object", "properties": map[string]any{"afloat": map[string]any{"type": "boolean"}}},
					},
				}},
			}},
		},
	}}
}

func boat(name string, seats int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "suite.coracle.dev/v1", "kind": "Boat",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"seats": seats, "unknown": "pruned"},
	}}
}

func TestTheDynamicClientServesCustomResources(t *testing.T) {
	ctx, ns := testContext(t), namespace(t)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(definitions).Create(ctx, boatDefinition(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Established", func(ctx context.Context) (bool, error) {
		definition, err := client.Resource(definitions).Get(ctx, "boats.suite.coracle.dev", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		// Before there are any, they are null: that is no slice.
		conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
		for _, condition := range conditions {
			if c, ok := condition.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return true, nil
			}
		}
		return false, nil
	})

	// Discovery knows the kind, by its short name too.
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	cached := memory.NewMemCacheClient(discoveryClient)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	eventually(t, "discovery", func(context.Context) (bool, error) {
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "suite.coracle.dev", Kind: "Boat"})
		if meta.IsNoMatchError(err) {
			mapper.Reset()
			return false, nil
		}
		return err == nil && mapping.Resource == boats && mapping.Scope.Name() == meta.RESTScopeNameNamespace, err
	})
	short, err := restmapper.NewShortcutExpander(mapper, cached, nil).ResourceFor(schema.GroupVersionResource{Resource: "bt"})
	if err != nil || short != boats {
		t.Errorf("%v, %v", short, err)
	}

	// An informer of the kind, and the kind's life.
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, time.Hour, ns, nil)
	lister := factory.ForResource(boats).Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	fleet := client.Resource(boats).Namespace(ns)
	created, err := fleet.Create(ctx, boat("coracle", 1), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedMap(created.Object, "spec")
	if spec["colour"] != "black" || spec["unknown"] != nil || created.GetGeneration() != 1 {
		t.Errorf("%v", created.Object)
	}
	if _, err := fleet.Create(ctx, boat("raft", 0), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("no seats: %v", err)
	}
	_ = unstructured.SetNestedField(created.Object, true, "status", "afloat")
	_ = unstructured.SetNestedField(created.Object, int64(9), "spec", "seats")
	updated, err := fleet.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seats, _, _ := unstructured.NestedInt64(updated.Object, "spec", "seats")
	if afloat, _, _ := unstructured.NestedBool(updated.Object, "status", "afloat"); !afloat || seats != 1 {
		t.Errorf("%v", updated.Object)
	}
	patched, err := fleet.Patch(ctx, "coracle", types.MergePatchType, []byte(`{"spec":{"seats":2}}`), metav1.PatchOptions{})
	if err != nil || patched.GetGeneration() != 2 {
		t.Errorf("%v, %v", patched, err)
	}
	apply := boat("coracle", 2)
	unstructured.RemoveNestedField(apply.Object, "spec", "unknown")
	_ = unstructured.SetNestedField(apply.Object, "red", "spec", "colour")
	if _, err := fleet.Apply(ctx, "coracle", apply, metav1.ApplyOptions{FieldManager: "painter"}); !apierrors.IsConflict(err) {
		t.Errorf("an apply of another's field: %v", err)
	}
	applied, err := fleet.Apply(ctx, "coracle", apply, metav1.ApplyOptions{FieldManager: "painter", Force: true})
	if colour, _, _ := unstructured.NestedString(applied.Object, "spec", "colour"); err != nil || colour != "red" {
		t.Errorf("%v, %v", applied, err)
	}
	eventually(t, "the informer", func(context.Context) (bool, error) {
		cached, err := lister.ByNamespace(ns).Get("coracle")
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && cached.(*unstructured.Unstructured).GetResourceVersion() == applied.GetResourceVersion(), err
	})
	if err := client.Resource(definitions).Delete(ctx, "boats.suite.coracle.dev", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the kind", func(ctx context.Context) (bool, error) {
		_, err := fleet.Get(ctx, "coracle", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func TestTheMetadataClientReadsAndWritesMetadataOnly(t *testing.T) {
	ctx, ns := testContext(t), namespace(t)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	typedMaps := typed(t).CoreV1().ConfigMaps(ns)
	if _, err := typedMaps.Create(ctx, configMap("settings", map[string]string{"a": "b"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, time.Hour, ns, nil)
	lister := factory.ForResource(configMaps).Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if _, err := lister.ByNamespace(ns).Get("settings"); err != nil {
		t.Fatal(err)
	}
	maps := client.Resource(configMaps).Namespace(ns)
	list, err := maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=settings"})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID == "" {
		t.Fatalf("%v, %v", list, err)
	}
	patch := []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)
	patched, err := maps.Patch(ctx, "settings", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil || patched.Labels["seen"] != "yes" {
		t.Fatalf("%v, %v", patched, err)
	}
	full, err := typedMaps.Get(ctx, "settings", metav1.GetOptions{})
	if err != nil || full.Data["a"] != "b" || full.ResourceVersion != patched.ResourceVersion {
		t.Fatalf("%v, %v", full, err)
	}
	eventually(t, "the informer", func(context.Context) (bool, error) {
		cached, err := lister.ByNamespace(ns).Get("settings")
		if err != nil {
			return false, err
		}
		accessor, err := meta.Accessor(cached)
		return err == nil && accessor.GetLabels()["seen"] == "yes", err
	})
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "seen"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletion", func(context.Context) (bool, error) {
		_, err := lister.ByNamespace(ns).Get("settings")
		return apierrors.IsNotFound(err), nil
	})
}
