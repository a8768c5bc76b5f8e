package policies

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/policy"
)

// namespaceFeed gives the engine the namespaces. Pods in a namespace with unknown labels are closed.
type namespaceFeed struct {
	watch     *informer.Informer[*corev1.Namespace]
	engine    *policy.Engine
	publisher *publisher
	shown     map[string]bool // in the engine
}

func newNamespaceFeed(s *shared, p *publisher) *namespaceFeed {
	f := &namespaceFeed{engine: s.engine, publisher: p, shown: make(map[string]bool)}
	f.watch = informer.Add(s.watches, "namespaces", s.config.Client.Namespaces(), informer.Options[*corev1.Namespace]{
		Lighten: lightenNamespace, Changed: s.on(f.refresh),
	})
	return f
}

func (f *namespaceFeed) refresh(name string) {
	o, known := f.watch.One(name)
	if known {
		f.engine.SetNamespace(name, o.Labels)
	} else {
		f.engine.DeleteNamespace(name)
	}
	if known == f.shown[name] {
		return
	}
	if f.shown[name] = known; !known {
		delete(f.shown, name)
	}
	for id := range f.publisher.attached {
		switch {
		case id.Namespace != name:
		case known:
			f.publisher.opened(id)
		default:
			f.publisher.closed(id)
		}
	}
}
