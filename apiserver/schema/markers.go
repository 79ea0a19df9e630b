package main

import (
	"go/ast"
	"go/constant"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// sourcePackage holds what only the source of a package says: markers in comments, and constants.
type sourcePackage struct {
	// By "Type" or "Type.Field".
	markers map[string]markers
	scope   *types.Scope
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

// granularity says how apply treats a map or struct, where that is said.
func (m markers) granularity() []string {
	return append(m.all("mapType"), m.all("structType")...)
}

// readPackages reads the sources of packages.
func readPackages(paths []string) map[string]*sourcePackage {
	config := packages.Config{Mode: packages.NeedName | packages.NeedSyntax | packages.NeedTypes}
	loaded, err := packages.Load(&config, paths...)
	if err != nil {
		panic(err)
	}
	sources := map[string]*sourcePackage{}
	for _, pkg := range loaded {
		source := &sourcePackage{scope: pkg.Types.Scope(), markers: map[string]markers{}}
		for _, file := range pkg.Syntax {
			for _, declaration := range file.Decls {
				if general, ok := declaration.(*ast.GenDecl); ok {
					source.read(general)
				}
			}
		}
		sources[pkg.PkgPath] = source
	}
	return sources
}

func (p *sourcePackage) read(declaration *ast.GenDecl) {
	for _, spec := range declaration.Specs {
		if spec, ok := spec.(*ast.TypeSpec); ok {
			doc := spec.Doc
			if doc == nil {
				doc = declaration.Doc
			}
			p.markers[spec.Name.Name] = readMarkers(doc)
			if structure, ok := spec.Type.(*ast.StructType); ok {
				p.readFields(spec.Name.Name, structure)
			}
		}
	}
}

func (p *sourcePackage) readFields(owner string, structure *ast.StructType) {
	for _, field := range structure.Fields.List {
		found := readMarkers(field.Doc)
		for _, name := range field.Names {
			p.markers[owner+"."+name.Name] = found
		}
		if embedded, ok := field.Type.(*ast.SelectorExpr); ok && field.Names == nil {
			p.markers[owner+"."+embedded.Sel.Name] = found
		}
	}
}

// enum lists the constants of a type that is marked as an enum, sorted.
func (p *sourcePackage) enum(typeName string) []string {
	if !p.markers[typeName].has("enum") {
		return nil
	}
	var values []string
	for _, name := range p.scope.Names() {
		if found, ok := p.scope.Lookup(name).(*types.Const); ok {
			if named, ok := found.Type().(*types.Named); ok && named.Obj().Name() == typeName {
				values = append(values, constant.StringVal(found.Val()))
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// defaultValue is the JSON text of a default: as written, or the constant in `ref(Constant)`.
func (p *sourcePackage) defaultValue(written string) string {
	reference, ok := strings.CutPrefix(written, "ref(")
	if !ok {
		return written
	}
	found := p.scope.Lookup(strings.TrimSuffix(reference, ")")).(*types.Const)
	return found.Val().ExactString()
}
