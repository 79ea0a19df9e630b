package main

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// sourcePackage holds what only the source of a package says: markers in comments, and the values of its enums.
type sourcePackage struct {
	// By "Type" or "Type.Field".
	markers map[string]markers
	// By type, sorted.
	enums map[string][]string
	// The string constants by name: a default may refer to one.
	constants map[string]string
}

// markers are the lines `+name` and `+name=value` of a comment, in order.
type markers [][2]string

func readMarkers(doc *ast.CommentGroup) markers {
	var found markers
	for line := range strings.Lines(doc.Text()) {
		if marker, ok := strings.CutPrefix(strings.TrimSpace(line), "+"); ok {
			name, value, _ := strings.Cut(marker, "=")
			found = append(found, [2]string{name, value})
		}
	}
	return found
}

func (m markers) all(name string) []string {
	var values []string
	for _, marker := range m {
		if marker[0] == name {
			values = append(values, marker[1])
		}
	}
	return values
}

func (m markers) get(name string) (string, bool) {
	if values := m.all(name); len(values) > 0 {
		return values[0], true
	}
	return "", false
}

func (m markers) has(name string) bool {
	_, ok := m.get(name)
	return ok
}

// atomic: apply treats the map or struct as one value.
func (m markers) atomic() bool {
	mapType, _ := m.get("mapType")
	structType, _ := m.get("structType")
	return mapType == "atomic" || structType == "atomic"
}

func readPackage(path string) *sourcePackage {
	found, err := build.Import(path, ".", build.FindOnly)
	if err != nil {
		panic(err)
	}
	files, err := filepath.Glob(filepath.Join(found.Dir, "*.go"))
	if err != nil {
		panic(err)
	}
	result := &sourcePackage{map[string]markers{}, map[string][]string{}, map[string]string{}}
	for _, file := range files {
		if name := filepath.Base(file); strings.HasPrefix(name, "zz_generated") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			panic(err)
		}
		for _, declaration := range parsed.Decls {
			if general, ok := declaration.(*ast.GenDecl); ok {
				result.read(general)
			}
		}
	}
	for name, values := range result.enums {
		if !result.markers[name].has("enum") {
			delete(result.enums, name)
		}
		sort.Strings(values)
	}
	return result
}

func (p *sourcePackage) read(declaration *ast.GenDecl) {
	for _, spec := range declaration.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			doc := spec.Doc
			if doc == nil {
				doc = declaration.Doc
			}
			p.readType(spec, doc)
		case *ast.ValueSpec:
			if declaration.Tok == token.CONST {
				p.readConstant(spec)
			}
		}
	}
}

func (p *sourcePackage) readType(spec *ast.TypeSpec, doc *ast.CommentGroup) {
	p.markers[spec.Name.Name] = readMarkers(doc)
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range structure.Fields.List {
		for _, name := range field.Names {
			p.markers[spec.Name.Name+"."+name.Name] = readMarkers(field.Doc)
		}
	}
}

func (p *sourcePackage) readConstant(spec *ast.ValueSpec) {
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			return
		}
		literal, ok := spec.Values[i].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			panic(err)
		}
		p.constants[name.Name] = value
		if typeName, ok := spec.Type.(*ast.Ident); ok {
			p.enums[typeName.Name] = append(p.enums[typeName.Name], value)
		}
	}
}

// defaultValue is the JSON text of a default: as written, or the constant in `ref(Constant)`.
func (p *sourcePackage) defaultValue(written string) string {
	reference, ok := strings.CutPrefix(written, "ref(")
	if !ok {
		return written
	}
	value, ok := p.constants[strings.TrimSuffix(reference, ")")]
	if !ok {
		panic("no constant for the default " + written)
	}
	return strconv.Quote(value)
}
