// Command template_types writes what the dump of a pod template needs to know of its Go types: the names, JSON names and types of
// fields, in their order, and the kinds of named scalars. `go run . cases < TEMPLATES` writes the cases of the test instead.
package main

import (
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var lines = map[string]string{}
var seen = map[string]reflect.Type{}

func visit(t reflect.Type) {
	switch t.Kind() {
	case reflect.Ptr, reflect.Slice:
		visit(t.Elem())
		return
	case reflect.Map:
		visit(t.Elem())
		if t.Name() != "" {
			lines[t.String()] = "map " + t.String() + " " + t.Elem().String()
		}
		return
	case reflect.Struct:
	default:
		if t.PkgPath() != "" {
			lines[t.String()] = "scalar " + t.String() + " " + t.Kind().String()
		}
		return
	}
	switch t {
	case reflect.TypeOf(resource.Quantity{}), reflect.TypeOf(metav1.Time{}), reflect.TypeOf(intstr.IntOrString{}), reflect.TypeOf(metav1.ManagedFieldsEntry{}):
		return
	}
	name := t.String()
	if other, ok := seen[name]; ok {
		if other != t {
			panic("two types of the name " + name)
		}
		return
	}
	seen[name] = t
	text := []string{"struct " + name}
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		json := strings.Split(f.Tag.Get("json"), ",")[0]
		if json == "" {
			json = "."
		}
		text = append(text, fmt.Sprintf(" %s %s %s", f.Name, json, f.Type))
		visit(f.Type)
	}
	lines[name] = strings.Join(text, "\n")
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "cases" {
		if err := cases(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	visit(reflect.TypeOf(corev1.PodTemplateSpec{}))
	var names []string
	for name := range lines {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Println("# Written by libs/kinds/template_types; do not edit.")
	for _, name := range names {
		fmt.Println(lines[name])
	}
}
