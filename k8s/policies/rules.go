package policies

import (
	"maps"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// rules reads the rules of attached pods. Attachments that the engine does not know are closed.
type rules struct {
	engine     *policy.Engine
	attached   attachments
	nodes      *nodeFeed
	namespaces *namespaceFeed
}

// of returns the rules of an attached pod. An unknown pod is closed, and a pod in a namespace with unknown
// labels.
func (r *rules) of(id policy.ID) map[string]policy.Lists {
	lists, known := r.engine.ListsOf(id)
	rules := make(map[string]policy.Lists)
	for _, a := range r.attached[id] {
		maps.Copy(rules, r.closed(a))
	}
	isOpen := known && r.namespaces.shown[id.Namespace]
	if !isOpen {
		return rules
	}
	for _, a := range r.attached.newestOf(id) { // an interface of a predecessor may have the same name
		for _, i := range a.Interfaces {
			delete(rules, i.Name)
		}
	}
	maps.Copy(rules, lists)
	return rules
}

// closed returns the rules of an unknown attachment.
func (r *rules) closed(a *pod.Attachment) map[string]policy.Lists {
	rules := make(map[string]policy.Lists)
	for _, i := range a.Interfaces {
		rules[i.Name] = policy.Closed(r.nodes.addresses)
	}
	return rules
}
