package main

import (
	"fmt"
	"reflect"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// special are the types with a JSON form of their own; the codec knows each by this name.
var special = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():                          "Quantity",
	reflect.TypeFor[intstr.IntOrString]():                         "IntOrString",
	reflect.TypeFor[meta.Time]():                                  "Time",
	reflect.TypeFor[meta.MicroTime]():                             "MicroTime",
	reflect.TypeFor[meta.Duration]():                             "Duration",
	reflect.TypeFor[meta.FieldsV1]():                              "FieldsV1",
	reflect.TypeFor[runtime.RawExtension]():                       "RawExtension",
	reflect.TypeFor[apiextensions.JSON]():                         "JSON",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():        "JSONSchemaPropsOrBool",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():       "JSONSchemaPropsOrArray",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray](): "JSONSchemaPropsOrStringArray",
}

// spell writes a type as Go does, with names of the package `home` unqualified.
func (f *facts) spell(t reflect.Type, home string) string {
	if name, ok := special[t]; ok {
		return name
	}
	if t.Name() != "" && t.PkgPath() != "" {
		if t.PkgPath() == home {
			return t.Name()
		}
		return f.qualified(t)
	}
	return f.structure(t, home)
}

// underlying spells what a named type is made of.
func (f *facts) underlying(t reflect.Type) string {
	return f.structure(t, t.PkgPath())
}

func (f *facts) structure(t reflect.Type, home string) string {
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + f.spell(t.Elem(), home)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + f.spell(t.Elem(), home)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			panic(fmt.Sprintf("%v has keys that are no strings", t))
		}
		return "map[" + f.spell(t.Key(), home) + "]" + f.spell(t.Elem(), home)
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return t.Kind().String()
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return "any"
		}
	}
	panic(fmt.Sprintf("%v is of a sort that the table does not know", t))
}

// packageName is the short name of a Go package in the table: core/v1, meta/v1, ...
func packageName(path string) string {
	parts := strings.Split(path, "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}

// openAPIPackage turns k8s.io/api/core/v1 into io.k8s.api.core.v1.
func openAPIPackage(path string) string {
	domain, rest, _ := strings.Cut(path, "/")
	labels := strings.Split(domain, ".")
	for i, j := 0, len(labels)-1; i < j; i, j = i+1, j-1 {
		labels[i], labels[j] = labels[j], labels[i]
	}
	return strings.Join(labels, ".") + "." + strings.ReplaceAll(rest, "/", ".")
}

type jsonName struct {
	name                        string
	omitempty, omitzero, inline bool
}

func jsonTag(field reflect.StructField) jsonName {
	parts := strings.Split(field.Tag.Get("json"), ",")
	tag := jsonName{name: parts[0]}
	for _, option := range parts[1:] {
		tag.omitempty = tag.omitempty || option == "omitempty"
		tag.omitzero = tag.omitzero || option == "omitzero"
		tag.inline = tag.inline || option == "inline"
	}
	if tag.name == "" {
		if !field.Anonymous {
			panic(field.Name + " has no JSON name")
		}
		tag.inline = true
	}
	return tag
}

// keepsZero: the zero value is printed. omitempty never hides a struct, omitzero does.
func (tag jsonName) keepsZero(t reflect.Type) bool {
	return !tag.omitzero && (!tag.omitempty || t.Kind() == reflect.Struct)
}

// protobufNumber is the field's number, or - for what protobuf leaves out. The tag's wire type is of no use: some are
// wrong, and the generated code of those types goes by the Go type.
func protobufNumber(field reflect.StructField) string {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return "-"
	}
	return parts[1]
}
