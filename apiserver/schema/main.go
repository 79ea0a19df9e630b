// Command schema prints the facts about every type of the Kubernetes API that Coracle serves: names, Go types, JSON and
// protobuf layout, list and map semantics, defaults, enums. Facts only; the comments of the Go sources are read for their
// markers and dropped.
//
//	cd apiserver/schema && go run . > ../apimachinery/src/schema/facts.txt
//
// The format is told in apiserver/apimachinery/src/schema/facts.rs, which reads it.
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func main() {
	facts := newFacts()
	roots := append(servedKinds(), metaKinds()...)
	for _, root := range roots {
		facts.visit(root.goType)
	}
	facts.packages = readPackages(facts.packagePaths())
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintln(out, "# Written by apiserver/schema; do not edit.")
	for _, root := range roots {
		group := root.kind.Group
		if group == "" {
			group = "core"
		}
		fmt.Fprintln(out, "kind", group, root.kind.Version, root.kind.Kind, facts.qualified(root.goType))
	}
	for _, root := range unservedKinds() {
		fmt.Fprintln(out, "unserved", root.kind.Group, root.kind.Version, root.kind.Kind)
	}
	facts.print(out)
}

type root struct {
	kind   schema.GroupVersionKind
	goType reflect.Type
}

// facts gathers the types reachable from the roots, by package.
type facts struct {
	packages map[string]*sourcePackage
	seen     map[reflect.Type]bool
	types    []reflect.Type
}

func newFacts() *facts {
	return &facts{seen: map[reflect.Type]bool{}}
}

func (f *facts) visit(t reflect.Type) {
	if f.seen[t] {
		return
	}
	f.seen[t] = true
	if t.Name() != "" && t.PkgPath() != "" {
		if _, ok := special[t]; ok {
			return
		}
		refuseCustomJSON(t)
		f.types = append(f.types, t)
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		f.visit(t.Elem())
	case reflect.Map:
		f.visit(t.Key())
		f.visit(t.Elem())
	case reflect.Struct:
		for i := 0; i < t.NumField(); i++ {
			if tag := jsonTag(t.Field(i)); tag.name != "-" {
				f.visit(t.Field(i).Type)
			}
		}
	}
}

func (f *facts) packagePaths() []string {
	var paths []string
	for _, t := range f.types {
		paths = append(paths, t.PkgPath())
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// refuseCustomJSON stops at a type whose JSON form is its own and that `special` does not know.
func refuseCustomJSON(t reflect.Type) {
	if _, ok := reflect.PointerTo(t).MethodByName("UnmarshalJSON"); ok {
		panic(fmt.Sprintf("%v has a JSON form of its own", t))
	}
}

func (f *facts) print(out *bufio.Writer) {
	sort.Slice(f.types, func(i, j int) bool {
		a, b := f.types[i], f.types[j]
		if a.PkgPath() != b.PkgPath() {
			return packageName(a.PkgPath()) < packageName(b.PkgPath())
		}
		return a.Name() < b.Name()
	})
	current := ""
	for _, t := range f.types {
		if t.PkgPath() != current {
			current = t.PkgPath()
			fmt.Fprintln(out, "\npackage", packageName(current), openAPIPackage(current))
		}
		if t.Kind() == reflect.Struct {
			f.printStruct(out, t)
		} else {
			f.printNamed(out, t)
		}
	}
}

func (f *facts) printNamed(out *bufio.Writer, t reflect.Type) {
	words := []string{"type", t.Name(), f.underlying(t)}
	if _, ok := reflect.PointerTo(t).MethodByName("MarshalToSizedBuffer"); ok {
		words = append(words, "message")
	}
	if values := f.source(t).enum(t.Name()); len(values) > 0 {
		words = append(words, "enum="+strings.Join(values, "|"))
	}
	fmt.Fprintln(out, strings.Join(words, " "))
}

func (f *facts) printStruct(out *bufio.Writer, t reflect.Type) {
	source := f.source(t)
	words := append([]string{"struct", t.Name()}, source.markers[t.Name()].granularity()...)
	fmt.Fprintln(out, strings.Join(words, " "))
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag := jsonTag(field)
		if tag.name == "-" {
			continue
		}
		fmt.Fprintln(out, " "+f.field(t, field, tag, source.markers[t.Name()+"."+field.Name]))
	}
}

func (f *facts) field(owner reflect.Type, field reflect.StructField, tag jsonName, markers markers) string {
	words := []string{tag.name, protobufNumber(field), f.spell(field.Type, owner.PkgPath())}
	if tag.inline {
		words[0] = "inline"
		return strings.Join(words, " ")
	}
	if tag.keepsZero(field.Type) {
		words = append(words, "keep")
	}
	if markers.has("required") || !tag.omitempty && !markers.has("optional") {
		words = append(words, "required")
	}
	if f.source(owner).markers[owner.Name()].has("union") {
		words = append(words, unionRole(markers))
	}
	words = append(words, listType(markers)...)
	words = append(words, markers.granularity()...)
	if strategy := field.Tag.Get("patchStrategy"); strategy != "" {
		words = append(words, "patch="+strategy)
	}
	if key := field.Tag.Get("patchMergeKey"); key != "" {
		words = append(words, "key="+key)
	}
	if value, ok := markers.get("default"); ok {
		words = append(words, "default="+f.source(owner).defaultValue(value))
	}
	return strings.Join(words, " ")
}

// unionRole says what a field of a union is.
func unionRole(markers markers) string {
	if markers.has("unionDiscriminator") {
		return "discriminator"
	}
	return "alternative"
}

// listType says how apply treats a list.
func listType(markers markers) []string {
	switch kind, _ := markers.get("listType"); kind {
	case "":
		return nil
	case "map":
		return []string{"map=" + strings.Join(markers.all("listMapKey"), ",")}
	case "set", "atomic":
		return []string{kind}
	default:
		panic("list type " + kind)
	}
}

func (f *facts) source(t reflect.Type) *sourcePackage {
	return f.packages[t.PkgPath()]
}

func (f *facts) qualified(t reflect.Type) string {
	return packageName(t.PkgPath()) + "." + t.Name()
}
