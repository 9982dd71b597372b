package policy

import (
	"context"
	"errors"
	"fmt"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	requestv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// A program has the compiled expressions of a policy.
type program struct {
	err error
	// conditions, validations and messages evaluate lists of expressions. A validation without an expression for its message has "''" there.
	conditions, validations, messages cel.ConditionEvaluator
	// patchers are called with a context that has the variables.
	patchers    []patch.Patcher
	withContext func(context.Context) cel.CompositionContext
}

// An expression is the text of an expression and the type of its value.
type expression struct {
	name, text string
	value      *celgo.Type
}

func (e expression) GetName() string            { return e.name }
func (e expression) GetExpression() string      { return e.text }
func (e expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{e.value} }

// compile compiles a policy.
func compile(p *policy, env *environment.EnvSet) *program {
	compiler, err := cel.NewCompositedCompiler(env)
	if err != nil {
		return &program{err: err}
	}
	declared := cel.OptionalVariableDeclarations{HasParams: p.paramKind != nil, HasAuthorizer: true}
	program := &program{withContext: compiler.CreateContext}
	for _, v := range p.variables {
		result := compiler.CompileAndStoreVariable(expression{v.Name, v.Expression, celgo.AnyType}, declared, environment.StoredExpressions)
		if result.Error != nil {
			program.err = errors.Join(program.err, fmt.Errorf("variable %s: %w", v.Name, result.Error))
		}
	}
	list := func(expressions []cel.ExpressionAccessor) cel.ConditionEvaluator {
		evaluator := compiler.CompileCondition(expressions, declared, environment.StoredExpressions)
		program.err = errors.Join(append(evaluator.CompilationErrors(), program.err)...)
		return evaluator
	}
	var conditions, validations, messages []cel.ExpressionAccessor
	for _, c := range p.conditions {
		conditions = append(conditions, expression{c.Name, c.Expression, celgo.BoolType})
	}
	for _, v := range p.validations {
		validations = append(validations, expression{text: v.Expression, value: celgo.BoolType})
		message := v.MessageExpression
		if message == "" {
			message = "''"
		}
		messages = append(messages, expression{text: message, value: celgo.StringType})
	}
	program.conditions, program.validations, program.messages = list(conditions), list(validations), list(messages)
	declared.HasPatchTypes = true
	for _, m := range p.mutations {
		if m.JSONPatch == nil {
			program.err = errors.Join(program.err, fmt.Errorf("patches of type %s are not supported", m.PatchType))
			continue
		}
		evaluator := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, declared, environment.StoredExpressions)
		program.err = errors.Join(append(evaluator.CompilationErrors(), program.err)...)
		program.patchers = append(program.patchers, patch.NewJSONPatcher(evaluator))
	}
	return program
}

// An input is what the expressions of a policy are evaluated on.
type input struct {
	attributes *admission.VersionedAttributes
	request    *requestv1.AdmissionRequest
	variables  cel.OptionalVariableBindings
	creation   *Creation
}

func newInput(c *Creation, param runtime.Object) *input {
	gvk := c.Object.GroupVersionKind()
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(c.Object, nil, gvk, c.Object.GetNamespace(), c.Object.GetName(), c.Resource, "", admission.Create,
			&metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "user"}),
		VersionedKind: gvk, VersionedObject: c.Object,
	}
	request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(c.Resource), metav1.GroupVersionKind(gvk))
	return &input{attributes, request, cel.OptionalVariableBindings{VersionedParams: param, Authorizer: authorizer.AuthorizerFunc(deny)}, c}
}

// deny answers the policies that ask for special rights of the user, such as that of the JobSet controller to write statuses.
func deny(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", nil
}

// evaluate returns the values of a list of expressions. One that fails has an error as its value.
func (in *input) evaluate(evaluator cel.ConditionEvaluator) ([]cel.EvaluationResult, error) {
	results, _, err := evaluator.ForInput(context.Background(), in.attributes, in.request, in.variables, in.creation.Namespace, celconfig.RuntimeCELCostBudget)
	return results, err
}

// apply mutates or validates the object. It returns the objections, and the error of the first expression that cannot be evaluated.
func (g *program) apply(p *policy, c *Creation, param runtime.Object) ([]string, error) {
	if g.err != nil {
		return nil, g.err
	}
	in := newInput(c, param)
	if isMatched, err := g.isMatched(in); !isMatched || err != nil {
		return nil, err
	}
	for _, patcher := range g.patchers {
		patched, err := patcher.Patch(g.withContext(context.Background()), patch.Request{
			MatchedResource: c.Resource, VersionedAttributes: in.attributes, OptionalVariables: in.variables, Namespace: c.Namespace,
			ObjectInterfaces: admission.NewObjectInterfacesFromScheme(runtime.NewScheme()),
		}, celconfig.RuntimeCELCostBudget)
		if err != nil {
			return nil, err
		}
		object, isObject := patched.(*unstructured.Unstructured)
		if !isObject {
			return nil, fmt.Errorf("the patch returned a %T", patched)
		}
		c.Object = object
		in = newInput(c, param)
	}
	return g.validate(p, in)
}

// isMatched reports whether all conditions are true. A condition that is false counts more than one that fails.
func (g *program) isMatched(in *input) (bool, error) {
	results, err := in.evaluate(g.conditions)
	for _, result := range results {
		if result.Error == nil && result.EvalResult != types.True {
			return false, nil
		}
		err = errors.Join(err, result.Error)
	}
	return err == nil, err
}

// validate returns the messages of the validations that are false.
func (g *program) validate(p *policy, in *input) ([]string, error) {
	results, err := in.evaluate(g.validations)
	if err != nil {
		return nil, err
	}
	var messages []string
	for i, result := range results {
		switch {
		case result.Error != nil && err == nil:
			err = result.Error
		case result.Error == nil && result.EvalResult != types.True:
			messages = append(messages, g.messageOf(p, in, i))
		}
	}
	if len(messages) > 0 {
		err = nil // often a consequence
	}
	return messages, err
}

// messageOf returns the message of a validation.
func (g *program) messageOf(p *policy, in *input, i int) string {
	results, err := in.evaluate(g.messages)
	if err == nil && results[i].Error == nil {
		if text, isString := results[i].EvalResult.Value().(string); isString && text != "" {
			return text
		}
	}
	if p.validations[i].Message != "" {
		return p.validations[i].Message
	}
	return "failed expression: " + p.validations[i].Expression
}
