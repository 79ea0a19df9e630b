// Package harbour is an operator on controller-runtime, and its suite: 200 tests, each of which begins with a control plane of its own.
package harbour

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all kinds of the operator.
var GroupVersion = schema.GroupVersion{Group: "harbour.example", Version: "v1"}

// AddToScheme registers the kinds of the operator that have Go types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Mooring{}, &MooringList{}, &Harbour{}, &HarbourList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Mooring is a place for a number of boats: a Deployment with a replica for each.
type Mooring struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MooringSpec   `json:"spec"`
	Status            MooringStatus `json:"status,omitempty"`
}

// MooringSpec is the desired state of a Mooring.
type MooringSpec struct {
	Boats int32  `json:"boats"`
	Image string `json:"image"`
}

// MooringStatus is the observed state of a Mooring.
type MooringStatus struct {
	Ready      int32              `json:"ready,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MooringList is a list of Moorings.
type MooringList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Mooring `json:"items"`
}

// Harbour holds the rules for the Moorings of all namespaces.
type Harbour struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              HarbourSpec `json:"spec"`
}

// HarbourSpec is the desired state of a Harbour.
type HarbourSpec struct {
	// Forbidden are the registries whose images no Mooring may have. The definition has a default.
	Forbidden []string `json:"forbidden,omitempty"`
}

// HarbourList is a list of Harbours.
type HarbourList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Harbour `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (m *Mooring) DeepCopyObject() runtime.Object {
	out := &Mooring{TypeMeta: m.TypeMeta, ObjectMeta: *m.ObjectMeta.DeepCopy(), Spec: m.Spec, Status: m.Status}
	out.Status.Conditions = slices.Clone(m.Status.Conditions)
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *MooringList) DeepCopyObject() runtime.Object {
	out := &MooringList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for _, item := range l.Items {
		out.Items = append(out.Items, *item.DeepCopyObject().(*Mooring))
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (h *Harbour) DeepCopyObject() runtime.Object {
	spec := HarbourSpec{Forbidden: slices.Clone(h.Spec.Forbidden)}
	return &Harbour{TypeMeta: h.TypeMeta, ObjectMeta: *h.ObjectMeta.DeepCopy(), Spec: spec}
}

// DeepCopyObject implements runtime.Object.
func (l *HarbourList) DeepCopyObject() runtime.Object {
	out := &HarbourList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for _, item := range l.Items {
		out.Items = append(out.Items, *item.DeepCopyObject().(*Harbour))
	}
	return out
}
