package clientgo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/pager"
	toolswatch "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"
)

func TestWritersThatRetryOnConflictLoseNoUpdate(t *testing.T) {
	const writers, increments = 8, 20
	ctx := testContext(t)
	configMaps := typed(t).CoreV1().ConfigMaps(namespace(t))
	if _, err := configMaps.Create(ctx, configMap("counter", map[string]string{"n": "0"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	failures := make(chan error, writers)
	var conflicts sync.Map
	for writer := range writers {
		group.Go(func() {
			for range increments {
				backoff := retry.DefaultBackoff
				backoff.Steps = 100
				err := retry.RetryOnConflict(backoff, func() error {
					counter, err := configMaps.Get(ctx, "counter", metav1.GetOptions{})
					if err != nil {
						return err
					}
					n, err := strconv.Atoi(counter.Data["n"])
					if err != nil {
						return err
					}
					counter.Data["n"] = strconv.Itoa(n + 1)
					_, err = configMaps.Update(ctx, counter, metav1.UpdateOptions{})
					if apierrors.IsConflict(err) {
						conflicts.Store(writer, true)
					}
					return err
				})
				if err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		t.Fatal(err)
	}
	counter, err := configMaps.Get(ctx, "counter", metav1.GetOptions{})
	if err != nil || counter.Data["n"] != strconv.Itoa(writers*increments) {
		t.Errorf("%v, %v", counter.Data, err)
	}
	found := false
	conflicts.Range(func(_, _ any) bool { found = true; return false })
	if !found {
		t.Error("no update conflicted")
	}
}

func TestErrorsAreTyped(t *testing.T) {
	ctx, ns := testContext(t), namespace(t)
	clients := typed(t)
	configMaps := clients.CoreV1().ConfigMaps(ns)
	created, err := configMaps.Create(ctx, configMap("a", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale := created.DeepCopy()
	created.Data = map[string]string{"new": "yes"}
	if _, err = configMaps.Update(ctx, created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	uid := types.UID("another")
	for name, test := range map[string]struct {
		is  func(error) bool
		act func() error
	}{
		"not found": {apierrors.IsNotFound, func() error { _, err := configMaps.Get(ctx, "none", metav1.GetOptions{}); return err }},
		"already exists": {apierrors.IsAlreadyExists, func() error {
			_, err := configMaps.Create(ctx, configMap("a", nil), metav1.CreateOptions{})
			return err
		}},
		"invalid": {apierrors.IsInvalid, func() error {
			_, err := configMaps.Create(ctx, configMap("A b", nil), metav1.CreateOptions{})
			return err
		}},
		"conflict": {apierrors.IsConflict, func() error { _, err := configMaps.Update(ctx, stale, metav1.UpdateOptions{}); return err }},
		"precondition": {apierrors.IsConflict, func() error {
			return configMaps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		}},
		"bad request": {apierrors.IsBadRequest, func() error {
			_, err := configMaps.List(ctx, metav1.ListOptions{LabelSelector: "a in ("})
			return err
		}},
	} {
		err := test.act()
		if !test.is(err) {
			t.Errorf("%s: %v", name, err)
		}
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Message == "" {
			t.Errorf("%s has no status: %v", name, err)
		}
	}
}

func TestAPagerSeesOneRevision(t *testing.T) {
	const count = 250
	ctx := testContext(t)
	configMaps := typed(t).CoreV1().ConfigMaps(namespace(t))
	for i := range count {
		if _, err := configMaps.Create(ctx, configMap(fmt.Sprintf("map-%03d", i), nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	lists := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return configMaps.List(ctx, options)
	})
	lists.PageSize = 100
	var names []string
	err := lists.EachListItem(ctx, metav1.ListOptions{LabelSelector: ""}, func(object runtime.Object) error {
		if len(names) == 0 {
			if _, err := configMaps.Create(ctx, configMap("map-late", nil), metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		names = append(names, object.(*corev1.ConfigMap).Name)
		return nil
	})
	// The root certificates may be there too, and were first.
	if err != nil || len(names) < count || len(names) > count+1 || names[len(names)-1] == "map-late" {
		t.Errorf("%d names, %v", len(names), err)
	}
}

func TestARetryWatcherSurvivesTheEndOfAWatch(t *testing.T) {
	ctx := testContext(t)
	configMaps := typed(t).CoreV1().ConfigMaps(namespace(t))
	first, err := configMaps.Create(ctx, configMap("first", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The server ends each watch after a second.
	second := int64(1)
	watches := 0
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, first.ResourceVersion, watchFunc(func(options metav1.ListOptions) (watch.Interface, error) {
		watches++
		options.TimeoutSeconds = &second
		options.FieldSelector = "metadata.name=later"
		return configMaps.Watch(ctx, options)
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	eventually(t, "a second watch", func(context.Context) (bool, error) { return watches > 1, nil })
	if _, err := configMaps.Create(ctx, configMap("later", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	event, err := toolswatch.UntilWithoutRetry(ctx, watcher, func(event watch.Event) (bool, error) {
		return event.Type == watch.Added, nil
	})
	if err != nil || event.Object.(*corev1.ConfigMap).Name != "later" {
		t.Errorf("%v, %v", event, err)
	}
}

type watchFunc func(metav1.ListOptions) (watch.Interface, error)

func (f watchFunc) WatchWithContext(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return f(options)
}

func TestAPodRunsIsEvictedAndScaled(t *testing.T) {
	ctx, ns := testContext(t), namespace(t)
	clients := typed(t)
	labels := map[string]string{"app": "web"}
	replicas := int32(2)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
	if _, err := clients.AppsV1().StatefulSets(ns).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ready := func(want int32) {
		eventually(t, fmt.Sprintf("%d ready", want), func(ctx context.Context) (bool, error) {
			set, err := clients.AppsV1().StatefulSets(ns).Get(ctx, "web", metav1.GetOptions{})
			return err == nil && set.Status.ReadyReplicas == want && set.Status.Replicas == want, err
		})
	}
	ready(2)
	pod, err := clients.CoreV1().Pods(ns).Get(ctx, "web-0", metav1.GetOptions{})
	if err != nil || pod.Status.Phase != corev1.PodRunning {
		t.Fatalf("%v, %v", pod.Status, err)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: ns}}
	if err := clients.PolicyV1().Evictions(ns).Evict(ctx, eviction); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another web-0", func(ctx context.Context) (bool, error) {
		another, err := clients.CoreV1().Pods(ns).Get(ctx, "web-0", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && another.UID != pod.UID, err
	})
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		scale, err := clients.AppsV1().StatefulSets(ns).GetScale(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale.Spec.Replicas++
		_, err = clients.AppsV1().StatefulSets(ns).UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ready(3)
}

func TestATokenIsMadeAndReviewed(t *testing.T) {
	ctx, ns := testContext(t), namespace(t)
	clients := typed(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "builder"}}
	if _, err := clients.CoreV1().ServiceAccounts(ns).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := clients.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "builder", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: request.Status.Token}}
	review, err = clients.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if want := "system:serviceaccount:" + ns + ":builder"; err != nil || !review.Status.Authenticated || review.Status.User.Username != want {
		t.Errorf("%v, %v", review, err)
	}
}

func TestARecorderWritesASeriesOfEvents(t *testing.T) {
	ctx := testContext(t)
	clients := typed(t)
	ns := namespace(t)
	regarding, err := clients.CoreV1().ConfigMaps(ns).Create(ctx, configMap("subject", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, "suite")
	for range 3 {
		recorder.Eventf(regarding, nil, corev1.EventTypeNormal, "Seen", "Looking", "it is %s", "there")
	}
	eventually(t, "the event", func(ctx context.Context) (bool, error) {
		list, err := clients.EventsV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=Seen"})
		return err == nil && len(list.Items) == 1 && list.Items[0].Note == "it is there" && list.Items[0].Series != nil, err
	})
}
