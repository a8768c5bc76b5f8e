package admission_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

func TestValidRequestsAreAdmitted(t *testing.T) {
	s := serve(t, read(t), cluster(t)...)
	for _, a := range validRequests(t) {
		if why := s.ask(t, a.request); why != "" {
			t.Errorf("%s: %s", a.name, why)
		}
	}
}

// Finding 6 of issue 12: a stolen agent token.
func TestStolenTokenIsDenied(t *testing.T) {
	all := read(t)
	s := serve(t, all, cluster(t)...)
	for policy, list := range attacks(t) {
		one := serve(t, all.only(policy), cluster(t)...)
		if !slices.ContainsFunc(all.policies, func(p *validating.Policy) bool { return p.Name == policy }) {
			t.Errorf("there is no policy %s", policy)
		}
		for _, a := range list {
			if s.ask(t, a.request) == "" {
				t.Errorf("%s: %s: all policies together admit it", policy, a.name)
			}
			if why := one.ask(t, a.request); !strings.Contains(why, a.message) {
				t.Errorf("%s: %s: %q, want %q", policy, a.name, why, a.message)
			}
		}
	}
	borrow := changes(t, "n1", "pool: pods, node: n2, offered: [10.9.2.7]",
		"pool: pods, node: n2, offered: [10.9.2.7], borrowed: [{address: 10.9.2.7, node: n1}]")
	off := serve(t, all.only("weft-borrowing"), object(t, "weftconfigs", "default", `{spec: {addresses: {}}}`))
	if why := off.ask(t, borrow); !strings.Contains(why, "borrowing is disabled") {
		t.Errorf("borrowing is disabled: %q", why)
	}
}

func TestRequestedAddressMayBeBorrowedWhileBorrowingIsOff(t *testing.T) {
	own := changes(t, "n3", "pool: pods, node: n2, offered: [10.9.2.8], "+requestOfN3,
		"pool: pods, node: n2, offered: [10.9.2.8], borrowed: [{address: 10.9.2.8, node: n3}]")
	other := changes(t, "n3", "pool: pods, node: n2, offered: [10.9.2.9], "+requestOfN3,
		"pool: pods, node: n2, offered: [10.9.2.9], borrowed: [{address: 10.9.2.9, node: n3}]")
	off := serve(t, read(t).only("weft-borrowing"), object(t, "weftconfigs", "default", `{spec: {addresses: {}}}`))
	if off.ask(t, other) == "" {
		t.Error("an address that was not requested is admitted")
	}
	for name, s := range map[string]*server{
		"no WeftConfig":        serve(t, read(t).only("weft-borrowing")),
		"borrowing is not set": off,
	} {
		if why := s.ask(t, own); why != "" {
			t.Errorf("%s: the requested address is denied: %s", name, why)
		}
	}
}

// Each validation denies an attack that no other validation of its policy denies with the same message.
func TestEachValidationDeniesAnAttack(t *testing.T) {
	all, tries := read(t), attacks(t)
	for _, p := range all.policies {
		if p.Name == "weft-borrowing" {
			continue // it has one validation, which TestStolenTokenIsDenied tests
		}
		asIs := serve(t, all.only(p.Name), cluster(t)...)
		for i, v := range p.Spec.Validations {
			t.Run(p.Name+"/"+v.Message+v.MessageExpression, func(t *testing.T) {
				t.Parallel()
				changed := all.only(p.Name)
				changed.policies[0].Spec.Validations[i].Expression = "true"
				s := serve(t, changed, cluster(t)...)
				if !slices.ContainsFunc(tries[p.Name], func(a attempt) bool {
					return s.ask(t, a.request) != asIs.ask(t, a.request)
				}) {
					t.Error("with true in place of the validation every attack is denied as before")
				}
			})
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			changed := all.only(p.Name)
			for i := range changed.policies[0].Spec.Validations {
				changed.policies[0].Spec.Validations[i].Expression = "true"
			}
			s := serve(t, changed, cluster(t)...)
			for _, a := range tries[p.Name] {
				if why := s.ask(t, a.request); why != "" {
					t.Errorf("%s: a policy with only true validations denies it: %s", a.name, why)
				}
			}
		})
	}
}

// Weft supports Kubernetes 1.30 and newer, so expressions use only functions of 1.30. The chart installs the policy for
// pods from the version on that has all its functions.
func TestExpressionsCompileOnTheOldestKubernetes(t *testing.T) {
	for file, minor := range map[string]uint{
		manifest: 30, statusManifest: 30, persistentManifest: 30, podManifest: 31,
	} {
		for _, p := range readFile(t, file).policies {
			t.Run(p.Name, func(t *testing.T) { compiles(t, p, minor) })
		}
	}
}

// compiles fails the test if an expression of a policy is not valid on Kubernetes 1.minor.
func compiles(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy, minor uint) {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, minor)))
	must(t, err)
	options := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	check := func(expression string, result cel.CompilationResult) {
		if result.Error != nil {
			t.Errorf("%s: %v", expression, result.Error)
		}
	}
	for _, c := range p.Spec.MatchConditions {
		check(c.Expression,
			compiler.CompileCELExpression(&matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression},
				options, environment.NewExpressions))
	}
	for _, v := range p.Spec.Variables {
		check(v.Name,
			compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, options,
				environment.NewExpressions))
	}
	for _, v := range p.Spec.Validations {
		check(v.Expression,
			compiler.CompileCELExpression(&validating.ValidationCondition{Expression: v.Expression}, options,
				environment.NewExpressions))
		if m := v.MessageExpression; m != "" {
			check(m,
				compiler.CompileCELExpression(&validating.MessageExpressionCondition{MessageExpression: m}, options,
					environment.NewExpressions))
		}
	}
}

func TestAnAgentAssignsTheAddressesOfAFreeClaim(t *testing.T) {
	s := serve(t, read(t).only("weft-ipamclaims"), cluster(t)...)
	if why := s.ask(t, request{
		node: "n2", operation: update, resource: "ipamclaims", sub: "status",
		old: object(t, "ipamclaims", "db-0", "{spec: {network: blue, interface: t1}}"),
		object: object(t, "ipamclaims", "db-0",
			`{spec: {network: blue, interface: t1}, status: {ips: [10.5.0.7/24, "fd05::7"], ownerPod: {name: db-0}}}`),
	}); why != "" {
		t.Errorf("denied: %s", why)
	}
}
