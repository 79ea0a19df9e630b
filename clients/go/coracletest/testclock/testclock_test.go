package testclock

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"coracle.dev/clients/go/coracletest"
	"coracle.dev/clients/go/coracletest/restconfig"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	lifetime = 30 * 24 * time.Hour
	period   = 5 * 24 * time.Hour
)

// startOperator starts an operator that looks at each ConfigMap every five days, and deletes it after 30 of them.
func startOperator(t *testing.T, config *rest.Config, c clock.WithTicker) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Clock: c})
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace("default"))
	maps := factory.Core().V1().ConfigMaps()
	add := func(object any) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
	}
	_, err = maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			key, shutdown := queue.Get()
			if shutdown {
				return
			}
			if after, err := reconcile(ctx, clients, maps.Informer().GetIndexer(), c, key); err != nil {
				t.Errorf("%s: %v", key, err)
			} else if after > 0 {
				queue.AddAfter(key, after)
			}
			queue.Done(key)
		}
	}()
	t.Cleanup(func() {
		queue.ShutDown()
		<-done
		cancel()
		factory.Shutdown()
	})
}

func reconcile(ctx context.Context, clients kubernetes.Interface, maps cache.Store, c clock.PassiveClock, key string) (time.Duration, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return 0, err
	}
	current, err := clients.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && current.Data["ttl"] == "") {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	age := c.Since(current.CreationTimestamp.Time)
	if age >= lifetime {
		return 0, clients.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	current.Data["days"] = strconv.Itoa(int(age / (24 * time.Hour)))
	if _, err := clients.CoreV1().ConfigMaps(namespace).Update(ctx, current, metav1.UpdateOptions{}); err != nil {
		return 0, err
	}
	return period - age%period, nil
}

func start(t *testing.T) (*coracletest.ControlPlane, *rest.Config, *Clock) {
	t.Helper()
	controlPlane := coracletest.Start(t, "--clock=manual", "--nodes=0")
	config, err := restconfig.Of(controlPlane)
	if err != nil {
		t.Fatal(err)
	}
	return controlPlane, config, New(t, config)
}

func TestAnOperatorLivesForAMonth(t *testing.T) {
	controlPlane, config, c := start(t)
	startOperator(t, config, c)
	clients := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	c.Advance(500 * time.Millisecond)
	created := c.Now().Truncate(time.Second)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}, Data: map[string]string{"ttl": "720h"}}
	if _, err := clients.Create(context.Background(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	controlPlane.Settle(t)
	c.Advance(2*period + time.Hour)
	got, err := clients.Get(context.Background(), "short-lived", metav1.GetOptions{})
	if err != nil || got.Data["days"] != "10" {
		t.Errorf("after ten days: %v, %v", got.Data, err)
	}
	if !got.CreationTimestamp.Time.Equal(created) {
		t.Errorf("created at %v, by the clock at %v", got.CreationTimestamp, created)
	}
	c.Advance(4*period - 2*time.Hour)
	if got, err := clients.Get(context.Background(), "short-lived", metav1.GetOptions{}); err != nil || got.Data["days"] != "25" {
		t.Errorf("before the end: %v, %v", got.Data, err)
	}
	c.Advance(time.Hour)
	if _, err := clients.Get(context.Background(), "short-lived", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a month: %v", err)
	}
	t.Logf("a month took %v", time.Since(began))
}

func TestTimersFireAtTheirTimes(t *testing.T) {
	_, _, c := start(t)
	start := c.Now()
	called := make(chan time.Time, 1)
	timer, later, stopped := c.NewTimer(time.Hour), c.After(3*time.Hour), c.NewTimer(time.Hour)
	c.AfterFunc(2*time.Hour, func() { called <- c.Now() })
	ticks := c.NewTicker(time.Minute)
	if !stopped.Stop() || stopped.Stop() {
		t.Error("a timer is stopped once")
	}
	if end := c.Advance(150 * time.Minute); end.Sub(start) != 150*time.Minute {
		t.Errorf("%v after %v", end, start)
	}
	for name, fired := range map[string]<-chan time.Time{"timer": timer.C(), "ticker": ticks.C()} {
		if at := <-fired; at.Sub(start) != time.Hour {
			t.Errorf("the %s fired after %v", name, at.Sub(start))
		}
	}
	if at := <-called; at.Sub(start) != 2*time.Hour {
		t.Errorf("the function was called after %v", at.Sub(start))
	}
	ticks.Stop()
	if timer.Reset(time.Hour) {
		t.Error("it has fired")
	}
	c.Advance(30 * time.Minute)
	if at := <-later; at.Sub(start) != 3*time.Hour || c.Since(start) != 3*time.Hour {
		t.Errorf("%v, %v", at.Sub(start), c.Since(start))
	}
	c.Advance(30 * time.Minute)
	if at := <-timer.C(); at.Sub(start) != 210*time.Minute {
		t.Errorf("the second time after %v", at.Sub(start))
	}
	select {
	case at := <-stopped.C():
		t.Errorf("a stopped timer fired at %v", at)
	case <-c.After(0):
	}
}

func TestAClockThatRunsFiresTimersByItself(t *testing.T) {
	controlPlane, _, c := start(t)
	before, start := c.NewTimer(50*time.Millisecond), c.Now()
	if _, err := controlPlane.Clock().Resume(); err != nil {
		t.Fatal(err)
	}
	c.Sleep(20 * time.Millisecond)
	for _, fired := range []<-chan time.Time{before.C(), c.After(10 * time.Millisecond)} {
		select {
		case <-fired:
		case <-time.After(10 * time.Second):
			t.Fatal("it does not fire")
		}
	}
	if passed := c.Since(start); passed < 50*time.Millisecond {
		t.Error(fmt.Errorf("%v have passed", passed))
	}
}
