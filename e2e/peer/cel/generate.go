package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strings"
)

// Expressions are made of templates: {type} stands for an expression of a type, {type|$:other} for one that may also
// use the variable $ of another type, which the template binds.
type generator struct {
	random *rand.Rand
	leaves map[string][]string
	fresh  int
}

// scoped is a variable that a macro binds.
type scoped struct{ name, kind string }

const maxDepth = 4

// generate writes questions for a number of random expressions about each fixture.
func generate(fixtures map[string]Fixture, count int, seed int64, out *bufio.Writer) error {
	names := make([]string, 0, len(fixtures))
	for name := range fixtures {
		names = append(names, name)
	}
	sort.Strings(names)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for index, name := range names {
		g := generator{random: rand.New(rand.NewSource(seed + int64(index))), leaves: fixtures[name].Leaves}
		for range count {
			g.fresh = 0
			kinds := []string{"bool", "bool", "string", "int", g.any()}
			kind := kinds[g.random.Intn(len(kinds))]
			if fixtures[name].Environment == "device" {
				kind = "bool"
			}
			expression := g.make(kind, 1+g.random.Intn(maxDepth), nil)
			question := Question{Name: name, Expression: expression}
			if err := encoder.Encode(question); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

func (g *generator) any() string {
	kinds := make([]string, 0, len(templates))
	for kind := range templates {
		kinds = append(kinds, kind)
	}
	sort.Strings(kinds)
	return kinds[g.random.Intn(len(kinds))]
}

// make is an expression of a type, now and then of another one.
func (g *generator) make(kind string, depth int, scope []scoped) string {
	switch chance := g.random.Intn(100); {
	case chance < 2:
		kind = g.any()
	case chance < 4 && kind != "dyn":
		return "dyn(" + g.make(g.any(), depth-1, scope) + ")"
	case chance < 5:
		return "(" + g.make("bool", depth-1, scope) + " ? " + g.make(kind, depth-1, scope) + " : " + g.make(kind, depth-1, scope) + ")"
	case chance < 6:
		return "optional.of(" + g.make(kind, depth-1, scope) + ").orValue(" + g.make(kind, depth-1, scope) + ")"
	}
	var options []string
	for _, variable := range scope {
		if variable.kind == kind {
			options = append(options, variable.name, variable.name)
		}
	}
	options = append(options, g.leaves[kind]...)
	if depth <= 0 || g.random.Intn(6) == 0 {
		options = append(options, literals[kind]...)
		if len(options) > 0 {
			return options[g.random.Intn(len(options))]
		}
	}
	made := templates[kind]
	if len(made) == 0 {
		return literals[kind][g.random.Intn(len(literals[kind]))]
	}
	if len(options) > 0 && g.random.Intn(5) == 0 {
		return options[g.random.Intn(len(options))]
	}
	return g.fill(made[g.random.Intn(len(made))], depth-1, scope)
}

func (g *generator) fill(template string, depth int, scope []scoped) string {
	if strings.Contains(template, "$") {
		for _, mark := range []string{"$$", "$"} {
			if strings.Contains(template, mark) {
				g.fresh++
				template = strings.ReplaceAll(template, mark, fmt.Sprintf("v%d", g.fresh))
			}
		}
	}
	var out strings.Builder
	for {
		start := strings.Index(template, "«")
		if start < 0 {
			out.WriteString(template)
			return out.String()
		}
		end := strings.Index(template, "»")
		hole := template[start+len("«") : end]
		parts := strings.Split(hole, "|")
		inner := append([]scoped{}, scope...)
		for _, binding := range parts[1:] {
			name, kind, _ := strings.Cut(binding, ":")
			inner = append(inner, scoped{name, kind})
		}
		out.WriteString(template[:start])
		out.WriteString(g.make(parts[0], depth, inner))
		template = template[end+len("»"):]
	}
}

// runGenerate reads the fixtures, and writes to standard output.
func runGenerate(fixtures map[string]Fixture, count int, seed int64) error {
	return generate(fixtures, count, seed, bufio.NewWriter(os.Stdout))
}
