package admission_test

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"
)

// An API server refuses a new policy that uses functions of its own version, or newer ones: the server before must
// understand it after a downgrade. All policies for users' objects must be accepted by Kubernetes 1.31, which thus has
// the functions of 1.30.
func TestPoliciesForUsersAreAcceptedByKubernetes131(t *testing.T) {
	for _, file := range []string{podManifest, claimManifest} {
		for _, p := range readFile(t, file).policies {
			compiled(t, p)
		}
	}
}

func compiled(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy) {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 30)))
	must(t, err)
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range p.Spec.Variables {
		if r := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, options,
			environment.NewExpressions); r.Error != nil {
			t.Errorf("%s: variable %s: %v", p.Name, v.Name, r.Error)
		}
	}
	for _, v := range p.Spec.Validations {
		expressions := []cel.ExpressionAccessor{&validating.ValidationCondition{Expression: v.Expression}}
		if v.MessageExpression != "" {
			expressions = append(expressions, &validating.MessageExpressionCondition{
				MessageExpression: v.MessageExpression,
			})
		}
		for _, e := range expressions {
			if r := compiler.CompileCELExpression(e, options, environment.NewExpressions); r.Error != nil {
				t.Errorf("%s: %.100s: %v", p.Name, e.GetExpression(), r.Error)
			}
		}
	}
}
