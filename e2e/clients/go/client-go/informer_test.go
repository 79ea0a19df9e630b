package clientgo

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// requests counts the lists and watches of a client.
type requests struct {
	mutex                      sync.Mutex
	lists, watches, watchLists int
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		query := request.URL.Query()
		r.mutex.Lock()
		switch {
		case query.Get("sendInitialEvents") == "true":
			r.watchLists++
		case query.Get("watch") == "true":
			r.watches++
		default:
			r.lists++
		}
		r.mutex.Unlock()
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func TestSharedInformersStreamTheirFirstList(t *testing.T) {
	const count = 100
	ctx, ns := testContext(t), namespace(t)
	configMaps := typed(t).CoreV1().ConfigMaps(ns)
	create := func(name string) *corev1.ConfigMap {
		object := configMap(name, map[string]string{"team": "red"})
		object.Labels = map[string]string{"suite": "informer"}
		created, err := configMaps.Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	for i := range count {
		create(fmt.Sprintf("map-%d", i))
	}

	counted := &requests{}
	wrapped := rest.CopyConfig(config)
	wrapped.Wrap(counted.wrap)
	clients, err := kubernetes.NewForConfig(wrapped)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, time.Hour, informers.WithNamespace(ns),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "suite=informer" }))
	shared := factory.Core().V1().ConfigMaps()
	if err := shared.Informer().AddIndexers(cache.Indexers{"team": func(object any) ([]string, error) {
		return []string{object.(*corev1.ConfigMap).Data["team"]}, nil
	}}); err != nil {
		t.Fatal(err)
	}
	var mutex sync.Mutex
	seen := map[string]int{}
	record := func(what string) {
		mutex.Lock()
		defer mutex.Unlock()
		seen[what]++
	}
	if _, err := shared.Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if initial {
				record("initial")
			} else {
				record("added")
			}
		},
		UpdateFunc: func(_, object any) { record("updated " + object.(*corev1.ConfigMap).Data["team"]) },
		DeleteFunc: func(any) { record("deleted") },
	}); err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(ctx)
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("%v is not synced", kind)
		}
	}
	if list, err := shared.Lister().ConfigMaps(ns).List(labels.Everything()); err != nil || len(list) != count {
		t.Fatalf("%d objects, %v", len(list), err)
	}
	if counted.lists != 0 || counted.watchLists != 1 {
		t.Errorf("%d lists, %d streaming lists", counted.lists, counted.watchLists)
	}

	object := create("one-more")
	object.Data["team"] = "blue"
	if _, err := configMaps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// To a watch with a selector an object that matches no longer is deleted.
	object, err = configMaps.Get(ctx, "map-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Labels = nil
	if _, err := configMaps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := configMaps.Delete(ctx, "map-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"initial": count, "added": 1, "updated blue": 1, "deleted": 2}
	eventually(t, "the events", func(context.Context) (bool, error) {
		mutex.Lock()
		defer mutex.Unlock()
		return fmt.Sprint(seen) == fmt.Sprint(want), nil
	})
	blue, err := shared.Informer().GetIndexer().ByIndex("team", "blue")
	if err != nil || len(blue) != 1 || blue[0].(*corev1.ConfigMap).Name != "one-more" {
		t.Errorf("%v, %v", blue, err)
	}
}
