package cluster

import (
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

// definitions are the networks of NetworkAttachmentDefinitions, by "namespace/name". Tenants may write thousands of
// them, so each is parsed once.
type definitions map[string]parsedDefinition

type parsedDefinition struct {
	config  string
	network string // "": it is not known, as of one that only Multus can execute
}

// update takes the definitions of the cluster over, and returns the networks that are known.
func (d *definitions) update(now map[string]nodeview.Definition) map[string]string {
	next := make(definitions, len(now))
	known := make(map[string]string)
	for name, o := range now {
		p, has := (*d)[name]
		if !has || p.config != o.Config {
			p = parsedDefinition{config: o.Config}
			if parsed, err := pod.ParseDefinition(o.Config); err == nil {
				p.network = parsed.Network
			}
		}
		next[name] = p
		if p.network != "" {
			known[name] = p.network
		}
	}
	*d = next
	return known
}
