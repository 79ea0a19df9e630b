package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

type (
	groupVersionResource = schema.GroupVersionResource
	types_               = ref.Val
)

var (
	dynamicResolver mutation.DynamicTypeResolver
	infinity        = strings.NewReplacer("+Inf", "inf", "-Inf", "-inf")
)

// printed is a value in JSON. An object with one member, the kind of the value, has what JSON cannot say.
func printed(value ref.Val) any {
	tagged := func(kind string, value any) any { return map[string]any{kind: value} }
	switch value := value.(type) {
	case nil:
		return json.RawMessage("null")
	case *apiservercel.Quantity:
		return tagged("quantity", value.Quantity.String())
	case apiservercel.Format:
		return tagged("format", value.Name)
	case types.Null:
		return json.RawMessage("null")
	case types.Bool:
		return bool(value)
	case types.Int:
		return int64(value)
	case types.String:
		return string(value)
	case types.Uint:
		return tagged("uint", strconv.FormatUint(uint64(value), 10))
	case types.Double:
		return tagged("double", infinity.Replace(strconv.FormatFloat(float64(value), 'f', -1, 64)))
	case types.Bytes:
		return tagged("bytes", base64.StdEncoding.EncodeToString(value))
	case types.Duration:
		return tagged("duration", value.Duration.Nanoseconds())
	case types.Timestamp:
		return tagged("timestamp", value.Time.UTC().Format(time.RFC3339Nano))
	case *types.Optional:
		if !value.HasValue() {
			return tagged("optional", []any{})
		}
		return tagged("optional", []any{printed(value.GetValue())})
	case *types.Type:
		return tagged("type", value.TypeName())
	case apiservercel.Quantity:
		return tagged("quantity", value.Quantity.String())
	case apiservercel.Semver:
		return tagged("semver", value.Version.String())
	case apiservercel.IP:
		return tagged("ip", value.Addr.String())
	case apiservercel.CIDR:
		return tagged("cidr", value.Prefix.String())
	case apiservercel.URL:
		return tagged("url", value.URL.String())
	}
	if list, is := value.(traits.Lister); is {
		items := []any{}
		for it := list.Iterator(); it.HasNext() == types.True; {
			items = append(items, printed(it.Next()))
		}
		return items
	}
	if entries, is := value.(traits.Mapper); is {
		pairs := [][]any{}
		for it := entries.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			pairs = append(pairs, []any{printed(key), printed(entries.Get(key))})
		}
		text := func(pair []any) string { return fmt.Sprint(pair[0]) }
		sort.Slice(pairs, func(a, b int) bool { return text(pairs[a]) < text(pairs[b]) })
		return tagged("map", pairs)
	}
	if object, is := value.(*dynamic.ObjectVal); is {
		if fields, err := object.ConvertToNative(reflect.TypeFor[map[string]any]()); err == nil {
			return tagged("object", []any{object.Type().TypeName(), fields})
		}
	}
	return tagged("other", value.Type().TypeName())
}
