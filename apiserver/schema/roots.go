package main

import (
	"reflect"
	"slices"
	"sort"
	"strings"

	admission "k8s.io/api/admission/v1"
	admissionbeta "k8s.io/api/admission/v1beta1"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	imagepolicy "k8s.io/api/imagepolicy/v1alpha1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsbeta "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationbeta "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// served lists the group versions of kube-apiserver 1.36 with default flags, what its webhooks and discovery speak, and the group
// that metrics-server serves behind it.
var served = []schema.GroupVersion{
	{Group: "", Version: "v1"},
	{Group: "admission.k8s.io", Version: "v1"},
	{Group: "admissionregistration.k8s.io", Version: "v1"},
	{Group: "apidiscovery.k8s.io", Version: "v2"},
	{Group: "apiextensions.k8s.io", Version: "v1"},
	{Group: "apiregistration.k8s.io", Version: "v1"},
	{Group: "apps", Version: "v1"},
	{Group: "authentication.k8s.io", Version: "v1"},
	{Group: "authorization.k8s.io", Version: "v1"},
	{Group: "autoscaling", Version: "v1"},
	{Group: "autoscaling", Version: "v2"},
	{Group: "batch", Version: "v1"},
	{Group: "certificates.k8s.io", Version: "v1"},
	{Group: "coordination.k8s.io", Version: "v1"},
	{Group: "discovery.k8s.io", Version: "v1"},
	{Group: "events.k8s.io", Version: "v1"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"},
	{Group: "metrics.k8s.io", Version: "v1beta1"},
	{Group: "networking.k8s.io", Version: "v1"},
	{Group: "node.k8s.io", Version: "v1"},
	{Group: "policy", Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1"},
	{Group: "resource.k8s.io", Version: "v1"},
	{Group: "scheduling.k8s.io", Version: "v1"},
	{Group: "storage.k8s.io", Version: "v1"},
}

// The old name of an eviction is still understood in a request's body.
var alsoRead = schema.GroupVersionKind{Group: "policy", Version: "v1beta1", Kind: "Eviction"}

// The kinds of package meta and where they are known.
var metaKnown = []struct {
	group, version string
	examples       []any
}{
	{"*", "*", []any{
		meta.CreateOptions{}, meta.DeleteOptions{}, meta.GetOptions{}, meta.ListOptions{}, meta.PatchOptions{},
		meta.UpdateOptions{}, meta.WatchEvent{},
	}},
	{"", "v1", []any{
		meta.APIGroup{}, meta.APIGroupList{}, meta.APIResourceList{}, meta.APIVersions{}, meta.List{}, meta.Status{},
	}},
	{"meta.k8s.io", "v1", []any{
		meta.PartialObjectMetadata{}, meta.PartialObjectMetadataList{}, meta.Table{}, meta.TableOptions{},
	}},
}

func servedKinds() []root {
	all := scheme.Scheme
	for _, add := range []func() error{
		func() error { return admission.AddToScheme(all) },
		func() error { return discoveryv2.AddToScheme(all) },
		func() error { return apiextensions.AddToScheme(all) },
		func() error { return apiregistration.AddToScheme(all) },
		func() error { return metrics.AddToScheme(all) },
	} {
		if err := add(); err != nil {
			panic(err)
		}
	}
	var roots []root
	for kind, goType := range all.AllKnownTypes() {
		isServed := slices.Contains(served, kind.GroupVersion()) || kind == alsoRead
		if isServed && !strings.HasSuffix(goType.PkgPath(), "/meta/v1") {
			roots = append(roots, root{kind, goType})
		}
	}
	sort.Slice(roots, func(i, j int) bool { return roots[i].kind.String() < roots[j].kind.String() })
	return roots
}

// unservedKinds are the kinds that kube-apiserver 1.36 registers in its schemes, and so decodes, in versions that it does not serve.
func unservedKinds() []root {
	all := scheme.Scheme
	for _, add := range []func() error{
		func() error { return admissionbeta.AddToScheme(all) },
		func() error { return imagepolicy.AddToScheme(all) },
		func() error { return apiextensionsbeta.AddToScheme(all) },
		func() error { return apiregistrationbeta.AddToScheme(all) },
	} {
		if err := add(); err != nil {
			panic(err)
		}
	}
	var roots []root
	for kind, goType := range all.AllKnownTypes() {
		isServed := slices.Contains(served, kind.GroupVersion()) || kind == alsoRead
		if !isServed && kind.Version != "__internal" && !strings.HasSuffix(goType.PkgPath(), "/meta/v1") {
			roots = append(roots, root{kind, goType})
		}
	}
	sort.Slice(roots, func(i, j int) bool { return roots[i].kind.String() < roots[j].kind.String() })
	return roots
}

func metaKinds() []root {
	var roots []root
	for _, known := range metaKnown {
		for _, example := range known.examples {
			goType := reflect.TypeOf(example)
			kind := schema.GroupVersionKind{Group: known.group, Version: known.version, Kind: goType.Name()}
			roots = append(roots, root{kind, goType})
		}
	}
	return roots
}
