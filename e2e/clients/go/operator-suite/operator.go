package harbour

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	finalizer = "harbour.example/berth"
	isReady   = "Ready"
)

// reconciler keeps a Deployment, a ConfigMap and a Berth for each Mooring.
type reconciler struct{ client.Client }

// SetUp adds the operator to a manager.
func SetUp(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).For(&Mooring{}).Owns(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}).
		Complete(&reconciler{manager.GetClient()})
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	mooring := &Mooring{}
	if err := r.Get(ctx, request.NamespacedName, mooring); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	berth := berthOf(mooring)
	if !mooring.DeletionTimestamp.IsZero() {
		if !controllerutil.RemoveFinalizer(mooring, finalizer) {
			return ctrl.Result{}, nil
		}
		if err := r.Delete(ctx, berth); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, client.IgnoreNotFound(r.Update(ctx, mooring))
	}
	if controllerutil.AddFinalizer(mooring, finalizer) {
		return ctrl.Result{}, r.Update(ctx, mooring)
	}
	// The status is written last.
	if len(mooring.Status.Conditions) == 0 {
		if err := r.Create(ctx, berth); client.IgnoreAlreadyExists(err) != nil {
			return ctrl.Result{}, err
		}
	}

	settings := &corev1.ConfigMap{ObjectMeta: owned(mooring)}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, settings, func() error {
		settings.Data = map[string]string{"boats": fmt.Sprint(mooring.Spec.Boats)}
		return controllerutil.SetControllerReference(mooring, settings, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	fleet := &appsv1.Deployment{ObjectMeta: owned(mooring)}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, fleet, func() error {
		labels := map[string]string{"mooring": mooring.Name}
		fleet.Spec.Replicas = &mooring.Spec.Boats
		fleet.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		fleet.Spec.Template.Labels = labels
		if len(fleet.Spec.Template.Spec.Containers) == 0 {
			fleet.Spec.Template.Spec.Containers = []corev1.Container{{Name: "boat"}}
		}
		fleet.Spec.Template.Spec.Containers[0].Image = mooring.Spec.Image
		return controllerutil.SetControllerReference(mooring, fleet, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.updateStatus(ctx, mooring, fleet)
}

func (r *reconciler) updateStatus(ctx context.Context, mooring *Mooring, fleet *appsv1.Deployment) error {
	before := mooring.DeepCopyObject().(*Mooring)
	condition := metav1.Condition{Type: isReady, Status: metav1.ConditionFalse, Reason: "Arriving", ObservedGeneration: mooring.Generation}
	mooring.Status.Ready = fleet.Status.ReadyReplicas
	isObserved := fleet.Status.ObservedGeneration == fleet.Generation
	if boats := mooring.Spec.Boats; isObserved && fleet.Status.UpdatedReplicas == boats && fleet.Status.Replicas == boats && fleet.Status.ReadyReplicas == boats {
		condition.Status, condition.Reason = metav1.ConditionTrue, "Moored"
	}
	meta.SetStatusCondition(&mooring.Status.Conditions, condition)
	return client.IgnoreNotFound(r.Status().Patch(ctx, mooring, client.MergeFrom(before)))
}

// owned returns the namespace and name of the ConfigMap and of the Deployment of a Mooring.
func owned(mooring *Mooring) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: mooring.Namespace, Name: mooring.Name}
}

// berthOf returns the Berth of a Mooring: an object of the cluster, which no owner reference leads to.
func berthOf(mooring *Mooring) *unstructured.Unstructured {
	berth := &unstructured.Unstructured{}
	berth.SetGroupVersionKind(GroupVersion.WithKind("Berth"))
	berth.SetName(mooring.Namespace + "-" + mooring.Name)
	return berth
}

// Validator is the webhook: it refuses images of the registries that a Harbour forbids.
type Validator struct {
	// Harbours reads from the server: a cache might not have a change yet that a user has seen.
	Harbours client.Reader
}

// ValidateCreate implements admission.Validator.
func (v Validator) ValidateCreate(ctx context.Context, mooring *Mooring) (admission.Warnings, error) {
	harbours := &HarbourList{}
	if err := v.Harbours.List(ctx, harbours); err != nil {
		return nil, err
	}
	registry, _, _ := strings.Cut(mooring.Spec.Image, "/")
	for _, harbour := range harbours.Items {
		if slices.Contains(harbour.Spec.Forbidden, registry) {
			return nil, fmt.Errorf("harbour %s forbids images of %s", harbour.Name, registry)
		}
	}
	return nil, nil
}

// ValidateUpdate implements admission.Validator. An image that was allowed once may stay, or else no finalizer could be removed.
func (v Validator) ValidateUpdate(ctx context.Context, old, mooring *Mooring) (admission.Warnings, error) {
	if mooring.Spec.Image == old.Spec.Image {
		return nil, nil
	}
	return v.ValidateCreate(ctx, mooring)
}

// ValidateDelete implements admission.Validator.
func (v Validator) ValidateDelete(context.Context, *Mooring) (admission.Warnings, error) {
	return nil, nil
}
