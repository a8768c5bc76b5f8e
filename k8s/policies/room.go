package policies

import (
	"cmp"
	"slices"

	"github.com/weftnet/weft/policy"
)

// room says which policies of a namespace have room in memory: the smallest ones, as long as their parts together do
// not exceed the limit. It decides by the policies alone, so all nodes decide the same, in whatever order they learn of
// them.
type room struct {
	limit int                 // of a namespace
	in    map[string][]*space // by namespace, in the order of compareSpaces
	of    map[policy.Ref]*space
}

// space is the room that a policy needs.
type space struct {
	policy.Ref

	parts  int
	isOver bool
}

func newRoom(limit int) *room {
	return &room{limit: limit, in: make(map[string][]*space), of: make(map[policy.Ref]*space)}
}

func compareSpaces(a, b *space) int {
	return cmp.Or(cmp.Compare(a.parts, b.parts), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func (r *room) isOver(id policy.Ref) bool {
	is := r.of[id]
	return is != nil && is.isOver
}

// set sets the number of parts of a policy; 0: there is no policy. It returns the other policies for which there is
// room now, or is not any more.
func (r *room) set(id policy.Ref, parts int) []policy.Ref {
	was := r.of[id]
	list := r.in[id.Namespace]
	switch {
	case was == nil && parts == 0, was != nil && was.parts == parts:
		return nil
	case was != nil:
		at, _ := slices.BinarySearchFunc(list, was, compareSpaces)
		list = slices.Delete(list, at, at+1)
		delete(r.of, id)
	}
	if parts > 0 {
		is := &space{Ref: id, parts: parts}
		at, _ := slices.BinarySearchFunc(list, is, compareSpaces)
		list = slices.Insert(list, at, is)
		r.of[id] = is
	}
	r.in[id.Namespace] = list
	if len(list) == 0 {
		delete(r.in, id.Namespace)
	}
	return r.divide(list, id)
}

// divide gives the room to the first policies of a list. It returns the policies that gain or lose their room,
// without the one that the caller knows of.
func (r *room) divide(list []*space, but policy.Ref) []policy.Ref {
	var changed []policy.Ref
	sum := 0
	for _, is := range list {
		sum += is.parts
		isOver := sum > r.limit
		if isOver != is.isOver && is.Ref != but {
			changed = append(changed, is.Ref)
		}
		is.isOver = isOver
	}
	return changed
}
