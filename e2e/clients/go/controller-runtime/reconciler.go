package manager

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

const (
	finalizer = "suite.coracle.dev/archive"
	teamIndex = "spec.team"
)

// reconciler keeps a ConfigMap of each site's pages, and archives the site when it is deleted.
type reconciler struct {
	client.Client
	mutex    sync.Mutex
	archived map[string]int
	seen     map[string]int
}

func (r *reconciler) count(counts map[string]int, name string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	counts[name]++
}

func (r *reconciler) counted(counts map[string]int, name string) int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return counts[name]
}

// setUp registers the reconciler: it is called for a site, for the ConfigMaps that it controls, and for the Secrets that it owns.
func (r *reconciler) setUp(ctx context.Context, manager ctrl.Manager) error {
	err := manager.GetFieldIndexer().IndexField(ctx, &Site{}, teamIndex, func(object client.Object) []string {
		return []string{object.(*Site).Spec.Team}
	})
	if err != nil {
		return err
	}
	owners := handler.EnqueueRequestForOwner(manager.GetScheme(), manager.GetRESTMapper(), &Site{})
	return ctrl.NewControllerManagedBy(manager).For(&Site{}).Owns(&corev1.ConfigMap{}).Watches(&corev1.Secret{}, owners).Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.count(r.seen, request.Name)
	site := &Site{}
	if err := r.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !site.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(site, finalizer) {
			// The cache may be older than the last reconciliation: then the update conflicts.
			err := r.Update(ctx, site)
			if err == nil {
				r.count(r.archived, site.Name)
			}
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(site, finalizer) {
		return ctrl.Result{}, r.Update(ctx, site)
	}

	pages := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, pages, func() error {
		pages.Data = map[string]string{}
		for number, page := range site.Spec.Pages {
			pages.Data[fmt.Sprintf("page-%d", number)] = page
		}
		return controllerutil.SetControllerReference(site, pages, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}

	before := site.DeepCopyObject().(*Site)
	site.Status.Pages = int32(len(site.Spec.Pages))
	site.Status.ObservedGeneration = site.Generation
	meta.SetStatusCondition(&site.Status.Conditions, metav1.Condition{
		Type: "Published", Status: metav1.ConditionTrue, Reason: "Written", ObservedGeneration: site.Generation,
	})
	return ctrl.Result{}, r.Status().Patch(ctx, site, client.MergeFrom(before))
}
