package manager

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"coracle.dev/clients/go/coracletest"
	"coracle.dev/clients/go/coracletest/restconfig"
)

const (
	deadline = 30 * time.Second
	ns       = "default"
)

// The manager and its reconciler run for all tests, whose sites have names of their own.
var (
	running *reconciler
	direct  client.Client
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	controlPlane, err := coracletest.New()
	if err != nil {
		return 1, err
	}
	defer controlPlane.Stop()
	config, err := restconfig.Of(controlPlane)
	if err != nil {
		return 1, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme, AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	// envtest's installation of definitions waits until discovery has them.
	definitions := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{Definition()}, Scheme: scheme}
	if _, err := envtest.InstallCRDs(config, definitions); err != nil {
		return 1, err
	}
	if direct, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}

	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "suite",
		LeaderElectionNamespace:       ns,
		LeaderElectionReleaseOnCancel: true,
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}},
	})
	if err != nil {
		return 1, err
	}
	running = &reconciler{Client: manager.GetClient(), archived: map[string]int{}, seen: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := running.setUp(ctx, manager); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	code := m.Run()
	cancel()
	if err := <-ended; err != nil {
		return 1, err
	}
	lease := &coordinationv1.Lease{}
	if err := direct.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: "suite"}, lease); err != nil {
		return 1, err
	}
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != "" {
		return 1, fmt.Errorf("the lease is not released: %v", lease.Spec)
	}
	return code, nil
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, deadline, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// create creates a site, and waits until it is published.
func create(t *testing.T, name, team string, pages ...string) *Site {
	t.Helper()
	site := &Site{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: SiteSpec{Team: team, Pages: pages}}
	if err := direct.Create(testContext(t), site); err != nil {
		t.Fatal(err)
	}
	untilPublished(t, site)
	return site
}

func untilPublished(t *testing.T, site *Site) {
	t.Helper()
	eventually(t, "Published", func(ctx context.Context) (bool, error) {
		err := direct.Get(ctx, client.ObjectKeyFromObject(site), site)
		return err == nil && site.Status.ObservedGeneration == site.Generation, err
	})
}

func pages(site *Site) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
}

func TestWhatASiteOwnsFollowsIt(t *testing.T) {
	ctx := testContext(t)
	site := create(t, "follows", "red", "one", "two")
	if site.Status.Pages != 2 || len(site.Status.Conditions) != 1 || !controllerutil.ContainsFinalizer(site, finalizer) {
		t.Fatalf("%+v", site)
	}
	owned := pages(site)
	if err := direct.Get(ctx, client.ObjectKeyFromObject(owned), owned); err != nil || !metav1.IsControlledBy(owned, site) || owned.Data["page-1"] != "two" {
		t.Fatalf("%+v, %v", owned, err)
	}

	// A change of the spec is a new generation, that of a status is none.
	site.Spec.Pages = []string{"one"}
	if err := direct.Update(ctx, site); err != nil {
		t.Fatal(err)
	}
	untilPublished(t, site)
	if site.Generation != 2 || site.Status.Pages != 1 {
		t.Errorf("%+v", site)
	}

	// Changes of others are reverted, and what they delete is created again.
	if err := direct.Get(ctx, client.ObjectKeyFromObject(owned), owned); err != nil {
		t.Fatal(err)
	}
	owned.Data["page-0"] = "forged"
	if err := direct.Update(ctx, owned); err != nil {
		t.Fatal(err)
	}
	restored := func(ctx context.Context) (bool, error) {
		current := pages(site)
		err := direct.Get(ctx, client.ObjectKeyFromObject(current), current)
		return err == nil && current.Data["page-0"] == "one", client.IgnoreNotFound(err)
	}
	eventually(t, "the page", restored)
	if err := direct.Delete(ctx, owned); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pages", restored)
}

func TestAFinalizerDelaysDeletionAndDependentsFollow(t *testing.T) {
	ctx := testContext(t)
	site := create(t, "deleted", "red", "one")
	if err := direct.Delete(ctx, site, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{site, pages(site)} {
		eventually(t, "the deletion", func(ctx context.Context) (bool, error) {
			err := direct.Get(ctx, client.ObjectKeyFromObject(object), object)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
	if archived := running.counted(running.archived, site.Name); archived != 1 {
		t.Errorf("archived %d times", archived)
	}
}

func TestAnOwnerThatIsNoControllerIsEnqueued(t *testing.T) {
	ctx := testContext(t)
	site := create(t, "enqueued", "red")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}}
	if err := controllerutil.SetOwnerReference(site, secret, direct.Scheme()); err != nil {
		t.Fatal(err)
	}
	if err := direct.Create(ctx, secret); err != nil {
		t.Fatal(err)
	}
	// A reconciliation or two that the site itself has caused may still come, but not ten.
	before := running.counted(running.seen, site.Name)
	for change := 0; running.counted(running.seen, site.Name) < before+10; change++ {
		if ctx.Err() != nil {
			t.Fatalf("%d reconciliations", running.counted(running.seen, site.Name)-before)
		}
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"stringData":{"change":"%d"}}`, change))
		if err := direct.Patch(ctx, secret, patch); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestTheCacheIsIndexedAndLimited(t *testing.T) {
	ctx := testContext(t)
	for _, name := range []string{"blue-1", "blue-2"} {
		create(t, name, "blue")
	}
	create(t, "green-1", "green")
	eventually(t, "the cache", func(ctx context.Context) (bool, error) {
		sites := &SiteList{}
		err := running.List(ctx, sites, client.InNamespace(ns), client.MatchingFields{teamIndex: "blue"})
		return err == nil && len(sites.Items) == 2, err
	})
	// The server has no such field selector: only the cache has it.
	if err := direct.List(ctx, &SiteList{}, client.MatchingFields{teamIndex: "blue"}); !apierrors.IsBadRequest(err) {
		t.Errorf("%v", err)
	}
	if err := running.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "any"}, &Site{}); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("another namespace: %v", err)
	}
}

func TestWritesOfOldVersionsConflict(t *testing.T) {
	ctx := testContext(t)
	site := create(t, "conflicts", "red")
	stale := site.DeepCopyObject().(*Site)
	site.Spec.Team = "blue"
	if err := direct.Update(ctx, site); err != nil {
		t.Fatal(err)
	}
	for what, write := range map[string]func() error{
		"update":        func() error { return direct.Update(ctx, stale.DeepCopyObject().(*Site)) },
		"status update": func() error { return direct.Status().Update(ctx, stale.DeepCopyObject().(*Site)) },
		"patch": func() error {
			changed := stale.DeepCopyObject().(*Site)
			changed.Labels = map[string]string{"late": "yes"}
			return direct.Patch(ctx, changed, client.MergeFromWithOptions(stale, client.MergeFromWithOptimisticLock{}))
		},
		"delete": func() error {
			return direct.Delete(ctx, stale, client.Preconditions{ResourceVersion: &stale.ResourceVersion})
		},
	} {
		if err := write(); !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	changed := stale.DeepCopyObject().(*Site)
	changed.Labels = map[string]string{"late": "yes"}
	if err := direct.Patch(ctx, changed, client.MergeFrom(stale)); err != nil || changed.Spec.Team != "blue" {
		t.Errorf("a patch without a version: %+v, %v", changed, err)
	}
	if err := direct.Create(ctx, &Site{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "dry"}}, client.DryRunAll); err != nil {
		t.Error(err)
	}
	if err := direct.Get(ctx, client.ObjectKey{Namespace: ns, Name: "dry"}, &Site{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run: %v", err)
	}
}
