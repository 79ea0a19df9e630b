package harbour

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deadline is far longer than anything should take.
const deadline = 60 * time.Second

// until watches an object until a condition holds of it, and returns it as it is then.
func until[T client.Object](t testing.TB, c client.WithWatch, object T, list client.ObjectList, condition func(T) bool) T {
	t.Helper()
	return follow(t, c, object, list, func(current T, exists bool) bool { return exists && condition(current) })
}

// untilGone watches an object until it does not exist.
func untilGone[T client.Object](t testing.TB, c client.WithWatch, object T, list client.ObjectList) {
	t.Helper()
	follow(t, c, object, list, func(_ T, exists bool) bool { return !exists })
}

func follow[T client.Object](t testing.TB, c client.WithWatch, object T, list client.ObjectList, isDone func(current T, exists bool) bool) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	current := object.DeepCopyObject().(T)
	err := c.Get(ctx, client.ObjectKeyFromObject(object), current)
	check(t, client.IgnoreNotFound(err))
	if isDone(current, err == nil) {
		return current
	}
	// Without a version the watch begins with the object, if it has been created meanwhile.
	from := &metav1.ListOptions{}
	if err == nil {
		from.ResourceVersion = current.GetResourceVersion()
	}
	events, err := c.Watch(ctx, list, &client.ListOptions{Raw: from}, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{metav1.ObjectNameField: object.GetName()})
	check(t, err)
	defer events.Stop()
	for event := range events.ResultChan() {
		var ok bool
		if current, ok = event.Object.(T); !ok {
			t.Fatalf("%v", event.Object)
		}
		if isDone(current, event.Type != watch.Deleted) {
			return current
		}
	}
	t.Fatalf("%s is not as it should be: %+v", object.GetName(), current)
	return current
}
