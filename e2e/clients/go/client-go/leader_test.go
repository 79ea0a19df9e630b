package clientgo

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// candidate runs an elector until its context is done, and reports when it leads.
func candidate(ctx context.Context, t *testing.T, ns, identity string, leads chan<- string) {
	clients := typed(t)
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, ns, "leader", clients.CoreV1(), clients.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		t.Error(err)
		return
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 100 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leads <- identity },
			OnStoppedLeading: func() {},
		},
	})
}

func TestALeaderIsFollowedByTheNext(t *testing.T) {
	ctx, ns := testContext(t), namespace(t)
	leads := make(chan string, 2)
	var stop [2]context.CancelFunc
	var ended [2]chan struct{}
	for i, identity := range []string{"first", "second"} {
		var candidacy context.Context
		candidacy, stop[i] = context.WithCancel(ctx)
		defer stop[i]()
		ended[i] = make(chan struct{})
		go func() {
			defer close(ended[i])
			candidate(candidacy, t, ns, identity, leads)
		}()
		if i == 0 {
			if leader := <-leads; leader != "first" {
				t.Fatalf("%s leads", leader)
			}
		}
	}
	lease, err := typed(t).CoordinationV1().Leases(ns).Get(ctx, "leader", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "first" || *lease.Spec.LeaseTransitions != 0 {
		t.Fatalf("%v, %v", lease, err)
	}
	stop[0]()
	<-ended[0]
	select {
	case leader := <-leads:
		if leader != "second" {
			t.Fatalf("%s leads", leader)
		}
	case <-ctx.Done():
		t.Fatal("nobody follows")
	}
	// After a renewal, since one that is cut off halfway conflicts with the release.
	eventually(t, "a renewal", func(ctx context.Context) (bool, error) {
		lease, err := typed(t).CoordinationV1().Leases(ns).Get(ctx, "leader", metav1.GetOptions{})
		return err == nil && lease.Spec.RenewTime.Sub(lease.Spec.AcquireTime.Time) > 50*time.Millisecond, err
	})
	stop[1]()
	<-ended[1]
	lease, err = typed(t).CoordinationV1().Leases(ns).Get(t.Context(), "leader", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "" {
		t.Fatalf("not released: %v, %v", lease, err)
	}
}
