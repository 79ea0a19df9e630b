package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	k8senvironment "k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/lazy"
	"k8s.io/apiserver/pkg/cel/library"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// environment compiles and evaluates expressions.
type environment interface {
	answer(expression string) Answer
}

func prepare(fixture Fixture) (environment, error) {
	switch fixture.Environment {
	case "rule", "optional-rule":
		return newRule(fixture)
	case "policy", "params-policy", "condition", "mutation":
		return newPolicy(fixture)
	case "device":
		return newDevice(fixture)
	}
	return nil, fmt.Errorf("unknown environment %q", fixture.Environment)
}

func base() *k8senvironment.EnvSet {
	return k8senvironment.MustBaseEnvSet(k8senvironment.DefaultCompatibilityVersion())
}

// compiled is a program with what its values are.
type compiled struct {
	env       *cel.Env
	estimator checker.CostEstimator
	options   []cel.ProgramOption
	values    interpreter.Activation
}

func (c compiled) answer(expression string) Answer {
	var answer Answer
	ast, issues := c.env.Compile(expression)
	if issues != nil {
		answer.Issues = issues.String()
		return answer
	}
	answer.Type = ast.OutputType().String()
	if c.estimator != nil {
		estimate, err := c.env.EstimateCost(ast, c.estimator)
		if err != nil {
			answer.Issues = "estimate: " + err.Error()
			return answer
		}
		answer.Estimate = []uint64{estimate.Min, estimate.Max}
	}
	program, err := c.env.Program(ast, c.options...)
	if err != nil {
		return Answer{Issues: "program instantiation failed: " + err.Error()}
	}
	value, details, err := program.ContextEval(context.Background(), c.values)
	if details != nil {
		answer.Cost = details.ActualCost()
	}
	if err != nil {
		answer.Error = err.Error()
	} else {
		answer.Value = printed(value)
	}
	return answer
}

// newRule is the environment of x-kubernetes-validations.
func newRule(fixture Fixture) (environment, error) {
	structural, err := structuralSchema(fixture.Schema)
	if err != nil {
		return nil, err
	}
	declared := model.SchemaDeclType(structural, fixture.Root).MaybeAssignTypeName("selfType")
	optional := fixture.Environment == "optional-rule"
	oldType := declared.CelType()
	if optional {
		oldType = types.NewOptionalType(oldType)
	}
	extended, err := base().Extend(k8senvironment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable(schemacel.ScopedVarName, declared.CelType()),
			cel.Variable(schemacel.OldScopedVarName, oldType),
		},
		DeclTypes: []*apiservercel.DeclType{declared},
	})
	if err != nil {
		return nil, err
	}
	bindings, err := fixture.bindings()
	if err != nil {
		return nil, err
	}
	if fixture.Root {
		structural = model.WithTypeAndObjectMeta(structural)
	}
	values := map[string]any{}
	if self, bound := bindings["self"]; bound {
		values["self"] = schemacel.UnstructuredToVal(self, structural)
	}
	old, bound := bindings["oldSelf"]
	switch {
	case bound && optional:
		values["oldSelf"] = types.OptionalOf(schemacel.UnstructuredToVal(old, structural))
	case bound:
		values["oldSelf"] = schemacel.UnstructuredToVal(old, structural)
	case optional:
		values["oldSelf"] = types.OptionalNone
	}
	activation, err := interpreter.NewActivation(values)
	if err != nil {
		return nil, err
	}
	estimator := &library.CostEstimator{SizeEstimator: sizes{declared}}
	return compiled{
		env:       extended.NewExpressionsEnv(),
		estimator: estimator,
		options: []cel.ProgramOption{
			cel.CostLimit(celconfig.PerCallLimit),
			cel.CostTracking(estimator),
			cel.InterruptCheckFrequency(celconfig.CheckFrequency),
		},
		values: activation,
	}, nil
}

func structuralSchema(text json.RawMessage) (*schema.Structural, error) {
	var external apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(text, &external); err != nil {
		return nil, err
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &internal, nil); err != nil {
		return nil, err
	}
	return schema.NewStructural(&internal)
}

// sizes bounds the sizes of the parts of self by its declared type.
type sizes struct{ root *apiservercel.DeclType }

func (s sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	path := node.Path()
	if len(path) == 0 {
		return nil
	}
	at := s.root
	for _, step := range path[1:] {
		var next *apiservercel.DeclType
		switch step {
		case "@items", "@values":
			next = at.ElemType
		case "@keys":
			next = at.KeyType
		default:
			if field, known := at.Fields[step]; known {
				next = field.Type
			}
		}
		if next == nil {
			return nil
		}
		at = next
	}
	return &checker.SizeEstimate{Max: uint64(at.MaxElements)}
}

func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// newPolicy is the environment of admission: match conditions, validations, mutations.
func newPolicy(fixture Fixture) (environment, error) {
	extended := base()
	variables := apiservercel.NewObjectType("kubernetes.variables", map[string]*apiservercel.DeclField{})
	request, namespace := plugincel.BuildRequestType(), plugincel.BuildNamespaceType()
	options := []cel.EnvOption{
		cel.Variable(plugincel.ObjectVarName, cel.DynType),
		cel.Variable(plugincel.OldObjectVarName, cel.DynType),
		cel.Variable(plugincel.NamespaceVarName, namespace.CelType()),
		cel.Variable(plugincel.RequestVarName, request.CelType()),
		cel.Variable(plugincel.AuthorizerVarName, library.AuthorizerType),
		cel.Variable(plugincel.RequestResourceAuthorizerVarName, library.ResourceCheckType),
	}
	declared := []*apiservercel.DeclType{request, namespace}
	if fixture.Environment == "params-policy" || fixture.Environment == "mutation" {
		options = append(options, cel.Variable(plugincel.ParamsVarName, cel.DynType))
	}
	steps := []k8senvironment.VersionedOptions{{EnvOptions: options, DeclTypes: declared}}
	if fixture.Environment != "condition" {
		composed := k8senvironment.VersionedOptions{
			EnvOptions: []cel.EnvOption{cel.Variable(plugincel.VariableVarName, variables.CelType())},
			DeclTypes:  []*apiservercel.DeclType{variables},
		}
		steps = append([]k8senvironment.VersionedOptions{composed}, steps...)
	}
	if fixture.Environment == "mutation" {
		patches := []cel.EnvOption{common.ResolverEnvOption(&dynamicResolver), library.JSONPatch()}
		steps = append(steps, k8senvironment.VersionedOptions{EnvOptions: patches})
	}
	for _, step := range steps {
		var err error
		step.IntroducedVersion = version.MajorMinor(1, 0)
		if extended, err = extended.Extend(step, k8senvironment.StrictCostOpt); err != nil {
			return nil, err
		}
	}
	bindings, err := fixture.bindings()
	if err != nil {
		return nil, err
	}
	values := admission{bindings}
	env := compiled{
		env:     extended.NewExpressionsEnv(),
		options: []cel.ProgramOption{cel.InterruptCheckFrequency(celconfig.CheckFrequency)},
		values:  values,
	}
	composed := lazy.NewMapValue(variables)
	for _, variable := range fixture.Variables {
		ast, issues := env.env.Compile(variable.Expression)
		if issues != nil {
			return nil, issues.Err()
		}
		declType := apiservercel.NewObjectType(ast.OutputType().String(), nil)
		if known, simple := simpleTypes[ast.OutputType().String()]; simple {
			declType = known
		}
		variables.Fields[variable.Name] = apiservercel.NewDeclField(variable.Name, declType, true, nil, nil)
		program, err := env.env.Program(ast, env.options...)
		if err != nil {
			return nil, err
		}
		composed.Append(variable.Name, func(*lazy.MapValue) types_ {
			value, _, err := program.ContextEval(context.Background(), values)
			if err != nil {
				return types.NewErr("composited variable %q fails to evaluate: %v", variable.Name, err)
			}
			return value
		})
	}
	bindings[plugincel.VariableVarName] = composed
	return env, nil
}

var simpleTypes = map[string]*apiservercel.DeclType{
	"bool": apiservercel.BoolType, "int": apiservercel.IntType, "string": apiservercel.StringType,
	"double": apiservercel.DoubleType, "dyn": apiservercel.DynType,
	"list(string)": apiservercel.NewListType(apiservercel.StringType, -1),
	"list(int)":    apiservercel.NewListType(apiservercel.IntType, -1),
}

// admission has the variables of an admission request.
type admission struct{ bindings map[string]any }

func (a admission) ResolveName(name string) (any, bool) {
	switch name {
	case plugincel.ObjectVarName, plugincel.OldObjectVarName, plugincel.ParamsVarName, plugincel.NamespaceVarName:
		return a.bindings[name], true
	case plugincel.RequestVarName, plugincel.VariableVarName:
		value, bound := a.bindings[name]
		return value, bound
	case plugincel.AuthorizerVarName:
		return library.NewAuthorizerVal(asker, decider{}), true
	case plugincel.RequestResourceAuthorizerVarName:
		return library.NewResourceAuthorizerVal(asker, decider{}, requested{}), true
	}
	return nil, false
}

func (admission) Parent() interpreter.Activation { return nil }

var asker = &user.DefaultInfo{Name: "alice", Groups: []string{"system:authenticated"}}

// decider decides by the verb: get is allowed, delete is denied with a reason, fail is an error.
type decider struct{}

func (decider) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	switch attributes.GetVerb() {
	case "get":
		return authorizer.DecisionAllow, "", nil
	case "delete":
		return authorizer.DecisionDeny, "not by " + attributes.GetUser().GetName(), nil
	case "fail":
		return authorizer.DecisionNoOpinion, "no answer", fmt.Errorf("out of order")
	}
	return authorizer.DecisionNoOpinion, strings.Join([]string{
		attributes.GetAPIGroup(), attributes.GetResource(), attributes.GetSubresource(), attributes.GetNamespace(),
		attributes.GetName(), attributes.GetPath(),
	}, "|"), nil
}

// requested is the resource of the request.
type requested struct{}

func (requested) GetName() string      { return "web" }
func (requested) GetNamespace() string { return "default" }
func (requested) GetResource() groupVersionResource {
	return groupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
}
func (requested) GetSubresource() string { return "" }

// device is the environment of selectors of devices.
type device struct {
	input dracel.Device
}

func newDevice(fixture Fixture) (environment, error) {
	var input struct {
		Device struct {
			Driver                   string                                                    `json:"driver"`
			AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
			Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
			Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
		} `json:"device"`
	}
	if len(fixture.Bindings) > 0 {
		if err := json.Unmarshal(fixture.Bindings, &input); err != nil {
			return nil, err
		}
	}
	return device{dracel.Device{
		Driver:                   input.Device.Driver,
		AllowMultipleAllocations: input.Device.AllowMultipleAllocations,
		Attributes:               input.Device.Attributes,
		Capacity:                 input.Device.Capacity,
	}}, nil
}

func (d device) answer(expression string) Answer {
	kind := k8senvironment.NewExpressions
	compiler := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true})
	result := compiler.CompileCELExpression(expression, dracel.Options{EnvType: &kind})
	var answer Answer
	if result.Error != nil {
		answer.Issues = result.Error.Detail
		return answer
	}
	answer.Type = result.OutputType.String()
	answer.Estimate = []uint64{0, result.MaxCost}
	matches, details, err := result.DeviceMatches(context.Background(), d.input)
	if details != nil {
		answer.Cost = details.ActualCost()
	}
	if err != nil {
		answer.Error = err.Error()
	} else {
		answer.Value = matches
	}
	return answer
}
