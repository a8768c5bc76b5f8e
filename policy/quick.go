package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// fewValues is the number of values of a requirement that are compared one by one.
const fewValues = 8

// quickSelector is a selector with requirements of many values. It looks the value of a label up instead of comparing
// it with each of them: a selector is compared with all pods of the cluster.
type quickSelector struct {
	labels.Selector // the same, for all other purposes

	few  labels.Requirements
	many []manyValues
}

// manyValues is a requirement that a label has one of the values, or none of them.
type manyValues struct {
	key    string
	values []string // sorted
	isIn   bool
}

// quick returns a selector that selects the same objects.
func quick(s labels.Selector) labels.Selector {
	if s == nil {
		return nil
	}
	requirements, _ := s.Requirements()
	q := &quickSelector{Selector: s}
	for _, r := range requirements {
		values := r.ValuesUnsorted()
		isIn := r.Operator() == selection.In
		if len(values) <= fewValues || !isIn && r.Operator() != selection.NotIn {
			q.few = append(q.few, r)
			continue
		}
		slices.Sort(values)
		q.many = append(q.many, manyValues{r.Key(), values, isIn})
	}
	if len(q.many) == 0 {
		return s
	}
	return q
}

// Matches reports whether the selector selects an object with the labels.
func (q *quickSelector) Matches(set labels.Labels) bool {
	for n := range q.few {
		if !q.few[n].Matches(set) {
			return false
		}
	}
	for n := range q.many {
		if !q.many[n].matches(set) {
			return false
		}
	}
	return true
}

func (m *manyValues) matches(set labels.Labels) bool {
	value, has := set.Lookup(m.key)
	if !has {
		return !m.isIn
	}
	_, isOne := slices.BinarySearch(m.values, value)
	return isOne == m.isIn
}
