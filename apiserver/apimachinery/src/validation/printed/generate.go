//go:build ignore

// Writes the table that printed.rs reads: the internal API types of Kubernetes, one a line, each field with the member of
// the published version that holds its value.
//
//	go run generate.go > types.txt    # in a module that requires k8s.io/kubernetes v1.36.2
package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/controlplane" // registers every group
)

// What the zero value prints, for types that print by a method of their own.
var opaque = map[string]string{
	"apiextensions.JSON":   "null",
	"intstr.IntOrString":   "0",
	"meta.Duration":        `"0s"`,
	"meta.FieldsV1":        "null",
	"meta.MicroTime":       "null",
	"meta.Time":            "null",
	"resource.Quantity":    `"0"`,
	"runtime.RawExtension": "null",
	"runtime.Unknown":      "null",
}

// Groups that are not served, or whose kinds another group shows better.
var foreign = []string{"extensions", "events.k8s.io", "imagepolicy.k8s.io", "internal.apiserver.k8s.io", "storagemigration.k8s.io"}

var table = map[string]string{}

// Types met without a counterpart; they may still be met with one.
var unpaired []reflect.Type

func name(t reflect.Type) string {
	if strings.HasSuffix(t.PkgPath(), "meta/v1") {
		return "meta." + t.Name()
	}
	return path.Base(t.PkgPath()) + "." + t.Name()
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// The shape of a type, adding the structs in it to the table; published is its counterpart, nil where there is none.
func shape(internal, published reflect.Type) string {
	if zero, ok := opaque[name(internal)]; ok {
		return zero
	}
	elem := published
	if published != nil && published.Kind() == internal.Kind() && internal.Kind() != reflect.Struct {
		switch internal.Kind() {
		case reflect.Ptr, reflect.Slice, reflect.Map:
			elem = published.Elem()
		}
	}
	switch internal.Kind() {
	case reflect.Ptr:
		return "?" + shape(internal.Elem(), elem)
	case reflect.Slice:
		if internal.Elem().Kind() == reflect.Uint8 {
			return "null"
		}
		return "[" + shape(internal.Elem(), elem)
	case reflect.Map:
		return "{" + shape(internal.Elem(), elem)
	case reflect.Struct:
		visit(internal, published)
		return name(internal)
	case reflect.String:
		return `""`
	case reflect.Bool:
		return "false"
	case reflect.Interface:
		return "null"
	default:
		return "0"
	}
}

func visit(internal, published reflect.Type) {
	if published == nil {
		unpaired = append(unpaired, internal)
		return
	}
	if _, seen := table[name(internal)]; seen {
		return
	}
	table[name(internal)] = ""
	table[name(internal)] = fields(internal, published, func(string) bool { return false })
}

func fields(internal, published reflect.Type, skip func(string) bool) string {
	var out []string
	for i := range internal.NumField() {
		field := internal.Field(i)
		tag := field.Tag.Get("json")
		shown, options, _ := strings.Cut(tag, ",")
		if !field.IsExported() || shown == "-" || skip(field.Name) {
			continue
		}
		member, counterpart := "", reflect.Type(nil)
		if published != nil && published.Kind() == reflect.Struct {
			if f, ok := published.FieldByName(field.Name); ok {
				member, _, _ = strings.Cut(f.Tag.Get("json"), ",")
				counterpart = f.Type
				if counterpart.Kind() == reflect.Ptr && field.Type.Kind() != reflect.Ptr {
					counterpart = counterpart.Elem()
				}
			} else if !field.Anonymous {
				fmt.Fprintln(os.Stderr, name(internal), field.Name, "has no published member")
			}
		}
		if field.Anonymous && shown == "" {
			out = append(out, "@"+member+":"+shape(field.Type, counterpart))
			continue
		}
		if shown == "" {
			shown = field.Name
		}
		entry := shown
		if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			entry += "~"
		}
		if member != "" && member != lowerFirst(shown) {
			entry += "=" + member
		}
		out = append(out, entry+":"+shape(field.Type, counterpart))
	}
	return strings.Join(out, " ")
}

// A kind itself is never printed, nor is its status: only what its spec is made of.
func kind(internal, published reflect.Type) {
	fields(internal, published, func(name string) bool {
		return name == "TypeMeta" || name == "ObjectMeta" || name == "Status"
	})
}

func main() {
	scheme := legacyscheme.Scheme
	kinds := slices.SortedFunc(maps.Keys(scheme.AllKnownTypes()), func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	})
	for _, gvk := range kinds {
		internal := scheme.AllKnownTypes()[gvk]
		if gvk.Version != runtime.APIVersionInternal || strings.HasSuffix(gvk.Kind, "List") ||
			strings.HasSuffix(gvk.Kind, "Options") || slices.Contains(foreign, gvk.Group) {
			continue
		}
		for _, version := range scheme.PrioritizedVersionsForGroup(gvk.Group) {
			if published, ok := scheme.AllKnownTypes()[version.WithKind(gvk.Kind)]; ok {
				if internal.PkgPath() != published.PkgPath() {
					kind(internal, published)
				}
				break
			}
		}
	}
	kind(reflect.TypeOf(apiextensions.CustomResourceDefinition{}), reflect.TypeOf(apiextensionsv1.CustomResourceDefinition{}))
	visit(reflect.TypeOf(metav1.Condition{}), reflect.TypeOf(metav1.Condition{}))
	visit(reflect.TypeOf(batch.UncountedTerminatedPods{}), reflect.TypeOf(batchv1.UncountedTerminatedPods{}))

	for len(unpaired) > 0 {
		next := unpaired[0]
		unpaired = unpaired[1:]
		if _, seen := table[name(next)]; !seen {
			visit(next, next)
		}
	}

	var names []string
	for name := range table {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Println(name, table[name])
	}
}
