package policy

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// group is the set of pods that a selector selects. Policies with the same selector share it.
type group struct {
	Selector
	members map[*podState]struct{}
	// users are the policies of which the members are subjects or peers.
	subjects, peers map[*policyState]struct{}
}

func (g *group) unused() bool { return len(g.subjects)+len(g.peers) == 0 }

// matches reports whether the group's selector selects a pod in a namespace with the labels.
func (g *group) matches(p *podState, namespace labels.Set) bool {
	if g.Namespace != "" {
		return g.Namespace == p.Namespace && g.Pods.Matches(labels.Set(p.Labels))
	}
	return g.selects(namespace) && g.Pods.Matches(labels.Set(p.Labels))
}

// selects reports whether the group's selector selects a namespace with the labels; nil: they are not known.
func (g *group) selects(namespace labels.Set) bool {
	switch {
	case namespace != nil && g.unknown == onlyUnknown:
		return false
	case namespace == nil && !g.Namespaces.Empty():
		return g.unknown != notUnknown
	}
	return g.Namespaces.Matches(namespace)
}

// selectors indexes groups, so that a pod is compared with few of them.
type selectors struct {
	inNamespace map[string]*labelIndex // groups of one namespace, by the labels of pods
	byPod       *labelIndex            // of several namespaces, by the labels of pods
	byNamespace *labelIndex            // those that the labels of pods do not narrow down, by the labels of namespaces
	unknown     map[*group]struct{}    // groups of byNamespace that select pods of namespaces without known labels
}

func newSelectors() *selectors {
	return &selectors{
		inNamespace: make(map[string]*labelIndex),
		byPod:       newLabelIndex(),
		byNamespace: newLabelIndex(),
		unknown:     make(map[*group]struct{}),
	}
}

// indexOf returns the index of a group and the selector that places it there.
func (s *selectors) indexOf(g *group) (*labelIndex, labels.Selector) {
	switch {
	case g.Namespace != "":
		in := s.inNamespace[g.Namespace]
		if in == nil {
			in = newLabelIndex()
			s.inNamespace[g.Namespace] = in
		}
		return in, g.Pods
	case len(places(g.Pods)) > 0:
		return s.byPod, g.Pods
	}
	return s.byNamespace, g.Namespaces
}

func (s *selectors) add(g *group) {
	in, by := s.indexOf(g)
	in.add(g, by)
	if in == s.byNamespace && g.unknown != notUnknown {
		s.unknown[g] = struct{}{}
	}
}

func (s *selectors) remove(g *group) {
	in, by := s.indexOf(g)
	in.remove(g, by)
	delete(s.unknown, g)
	if g.Namespace != "" && in.isEmpty() {
		delete(s.inNamespace, g.Namespace)
	}
}

// candidates calls f with each group that may select a pod, some of them twice.
func (s *selectors) candidates(p *podState, namespace labels.Set, f func(*group)) {
	if in := s.inNamespace[p.Namespace]; in != nil {
		in.candidates(p.Labels, f)
	}
	s.byPod.candidates(p.Labels, f)
	s.byNamespace.candidates(namespace, f)
	if namespace == nil {
		for g := range s.unknown {
			f(g)
		}
	}
}

// place is where a selector is found by a label: by its key and value, or by its key.
type place struct{ key, value string }

// anyValue is the value of a place for any value of a label; a label cannot have it.
const anyValue = "\x00"

// places lists the labels of which an object needs one to be selected; none: an object without labels may be selected.
func places(s labels.Selector) []place {
	requirements, _ := s.Requirements()
	var best []place
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			all := placesOf(&r)
			isAny := all[0].value == anyValue
			if len(best) == 0 || best[0].value == anyValue || !isAny && len(all) < len(best) {
				best = all
			}
		case selection.Exists:
			if len(best) == 0 {
				best = []place{{r.Key(), anyValue}}
			}
		}
	}
	return best
}

// maxPlaces is the number of places of a selector. One with more values is found by their key: a comparison with it is
// a lookup.
const maxPlaces = 64

// placesOf lists the places of a requirement for one of several values.
func placesOf(r *labels.Requirement) []place {
	values := r.ValuesUnsorted()
	if len(values) > maxPlaces {
		return []place{{r.Key(), anyValue}}
	}
	var all []place
	for _, value := range values {
		all = append(all, place{r.Key(), value})
	}
	return all
}

// labelIndex finds the groups that an object with some labels may belong to.
type labelIndex struct {
	at   map[place]map[*group]struct{}
	rest map[*group]struct{} // may select an object without labels
}

func newLabelIndex() *labelIndex {
	return &labelIndex{at: make(map[place]map[*group]struct{}), rest: make(map[*group]struct{})}
}

func (x *labelIndex) isEmpty() bool { return len(x.at)+len(x.rest) == 0 }

func (x *labelIndex) add(g *group, by labels.Selector) {
	list := places(by)
	if len(list) == 0 {
		x.rest[g] = struct{}{}
	}
	for _, p := range list {
		if x.at[p] == nil {
			x.at[p] = make(map[*group]struct{})
		}
		x.at[p][g] = struct{}{}
	}
}

func (x *labelIndex) remove(g *group, by labels.Selector) {
	delete(x.rest, g)
	for _, p := range places(by) {
		if delete(x.at[p], g); len(x.at[p]) == 0 {
			delete(x.at, p)
		}
	}
}

func (x *labelIndex) candidates(set map[string]string, f func(*group)) {
	for g := range x.rest {
		f(g)
	}
	for key, value := range set {
		for _, p := range []place{{key, value}, {key, anyValue}} {
			for g := range x.at[p] {
				f(g)
			}
		}
	}
}
