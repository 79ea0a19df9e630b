// Command cel answers expressions as kube-apiserver does. It reads JSON lines with an expression and an
// environment from standard input, and writes a line with the answer for each to standard output.
//
// The first argument is a file of fixtures: named environments with their schemas and bindings. With two more, a number and
// a seed, it writes questions instead: so many random expressions about each fixture.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Fixture is what an expression is compiled and evaluated with.
type Fixture struct {
	// Environment is one of rule, optional-rule, policy, params-policy, condition, mutation, device.
	Environment string `json:"environment,omitempty"`
	// Schema is the OpenAPI v3 schema of self and oldSelf in the environments of rules.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Root says that the schema is that of a whole resource.
	Root bool `json:"root,omitempty"`
	// Variables are the composed variables of policies, in their order.
	Variables []Variable `json:"variables,omitempty"`
	// Bindings are the values of the variables.
	Bindings json.RawMessage `json:"bindings,omitempty"`
	// Leaves are expressions of the variables, by their types, of which random expressions are made.
	Leaves map[string][]string `json:"leaves,omitempty"`
}

// Variable is a composed variable of a policy.
type Variable struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

// Question is an expression, with a fixture by name or within.
type Question struct {
	Fixture
	Name       string `json:"fixture,omitempty"`
	Expression string `json:"expression"`
}

// Answer is what the libraries of kube-apiserver make of an expression.
type Answer struct {
	Name       string `json:"fixture,omitempty"`
	Expression string `json:"expression"`
	// Issues is the text of the compilation errors.
	Issues string `json:"issues,omitempty"`
	// Type is the output type.
	Type string `json:"type,omitempty"`
	// Estimate is the least and greatest estimated cost.
	Estimate []uint64 `json:"estimate,omitempty"`
	// Cost is the cost of the evaluation.
	Cost *uint64 `json:"cost,omitempty"`
	// Error is the text of the run-time error.
	Error string `json:"error,omitempty"`
	// Value is the value; what JSON cannot say is an object with the kind of the value as its only member.
	Value any `json:"value,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	fixtures := map[string]Fixture{}
	if len(os.Args) > 1 {
		text, err := os.ReadFile(os.Args[1])
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &fixtures); err != nil {
			return err
		}
	}
	if len(os.Args) == 4 {
		count, err := strconv.Atoi(os.Args[2])
		if err != nil {
			return err
		}
		seed, err := strconv.ParseInt(os.Args[3], 10, 64)
		if err != nil {
			return err
		}
		return runGenerate(fixtures, count, seed)
	}
	prepared := map[string]environment{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var question Question
		if err := json.Unmarshal(lines.Bytes(), &question); err != nil {
			return err
		}
		fixture := question.Fixture
		if question.Name != "" {
			named, known := fixtures[question.Name]
			if !known {
				return fmt.Errorf("unknown fixture %q", question.Name)
			}
			fixture = named
		}
		env, known := prepared[question.Name]
		if !known || question.Name == "" {
			var err error
			if env, err = prepare(fixture); err != nil {
				return fmt.Errorf("%s: %w", question.Name, err)
			}
			prepared[question.Name] = env
		}
		answer, answered := try(env, question.Expression)
		if !answered || !isStable(env, answer, question.Expression) {
			continue
		}
		answer.Name, answer.Expression = question.Name, question.Expression
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// try answers an expression, unless it makes the libraries panic.
func try(env environment, expression string) (answer Answer, answered bool) {
	defer func() {
		if panicked := recover(); panicked != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", expression, panicked)
			answered = false
		}
	}()
	return env.answer(expression), true
}

// isStable tells whether a value does not depend on the order of a map, which Go shuffles.
func isStable(env environment, first Answer, expression string) bool {
	text, _ := json.Marshal(first)
	for range 4 {
		if again, _ := json.Marshal(env.answer(expression)); !bytes.Equal(text, again) {
			return false
		}
	}
	return true
}

// bindings decodes the values as kube-apiserver does, with whole numbers as integers.
func (f Fixture) bindings() (map[string]any, error) {
	values := map[string]any{}
	if len(f.Bindings) == 0 {
		return values, nil
	}
	err := utiljson.Unmarshal(f.Bindings, &values)
	return values, err
}
