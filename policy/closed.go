package policy

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weftnet/weft/internal/line"
)

// InvalidError says which parts of a policy are not understood. They are read such that the policy permits no
// connection that it would not permit if they were understood:
//
//   - An invalid part that allows (a peer or port of a NetworkPolicy, an Allow rule of an AdminNetworkPolicy) matches
//     no connection. The policy isolates as before.
//   - An invalid rule that denies or passes denies all: as the network-policy-api says, "For Deny and Pass rules, fail
//     closed means: treat the rule as a 'Deny all' rule".
//   - Invalid requirements of the subject's selectors are left out, so the subject is larger. Connections that the
//     policy allows or passes are then denied, because another policy may isolate the pod.
type InvalidError struct {
	Policy  Ref
	Reasons []string // at least one, with the name of the part
}

// Error returns policy and reasons in one line.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s: %s", e.Policy, strings.Join(e.Reasons, "; "))
}

// maxReasons is the number of reasons that are kept of a policy with invalid parts, and maxReason their length. Each
// agent keeps the reasons of all policies, and users can write policies with only invalid parts.
const (
	maxReasons = 16
	maxReason  = 256
)

// faults collects the invalid parts of a policy.
type faults []string

// add notes the error of a part of the policy; nil: the part is valid.
func (f *faults) add(part string, err error) {
	switch {
	case err == nil || len(*f) > maxReasons:
	case len(*f) == maxReasons:
		*f = append(*f, "and other parts")
	default:
		// errors.Join has a line for each
		*f = append(*f, line.Cut(part+": "+strings.ReplaceAll(err.Error(), "\n", ", "), maxReason, "..."))
	}
}

// of returns the error of a policy; nil if all its parts are valid.
func (f *faults) of(id Ref) error {
	if len(*f) == 0 {
		return nil
	}
	return &InvalidError{Policy: id, Reasons: *f}
}

// atLeast returns a selector of all objects that an API's selector may select: one without the
// invalid requirements. The error names them.
func atLeast(s *metav1.LabelSelector) (labels.Selector, error) {
	whole, err := metav1.LabelSelectorAsSelector(s)
	if err == nil {
		return whole, nil
	}
	is := labels.NewSelector()
	var errs []error
	for _, one := range requirementsOf(s) {
		part, err := metav1.LabelSelectorAsSelector(one)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		requirements, _ := part.Requirements()
		is = is.Add(requirements...)
	}
	return is, errors.Join(errs...)
}

// requirementsOf returns a selector of each requirement. An object is selected if all of them select it.
func requirementsOf(s *metav1.LabelSelector) []*metav1.LabelSelector {
	var list []*metav1.LabelSelector
	for key, value := range s.MatchLabels {
		list = append(list, &metav1.LabelSelector{MatchLabels: map[string]string{key: value}})
	}
	for _, e := range s.MatchExpressions {
		list = append(list, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{e}})
	}
	return list
}
