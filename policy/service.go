package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Service is a Service whose cluster addresses pods contact. The node translates them behind the dataplane, so the rules of a pod see them
// untranslated.
type Service struct {
	Name      string // namespace/name
	Frontends []Frontend
}

// Frontend is an address and port of a Service with the endpoints that the node replaces it by.
type Frontend struct {
	Address  netip.Addr
	Protocol uint8
	Port     uint16
	External bool // an external IP or a load balancer's address: it may be any
	Backends []netip.AddrPort
}

// SetService adds a Service or changes it.
func (e *Engine) SetService(s Service) {
	was, known := e.services[s.Name]
	if known && slices.EqualFunc(was.Frontends, s.Frontends, func(a, b Frontend) bool {
		return a.Address == b.Address && a.Protocol == b.Protocol && a.Port == b.Port && a.External == b.External && slices.Equal(a.Backends, b.Backends)
	}) {
		return
	}
	e.countExternal(was, -1)
	e.countExternal(s, 1)
	e.services[s.Name] = s
	e.servicesChanged()
}

// DeleteService removes a Service. An unknown one is no error.
func (e *Engine) DeleteService(name string) {
	if was, known := e.services[name]; known {
		e.countExternal(was, -1)
		delete(e.services, name)
		e.servicesChanged()
	}
}

// servicesChanged marks the pods with rules: those of other pods permit everything.
func (e *Engine) servicesChanged() {
	for _, ns := range e.namespaces {
		for _, p := range ns.pods {
			if len(p.lists) > 0 {
				e.touch(p)
			}
		}
	}
}

// isPod reports whether an external address is that of a pod. The dataplane sends packets for it to the pod, so the node never replaces the
// address, and only the rules about pods may decide.
func (e *Engine) isPod(f Frontend) bool { return f.External && e.addresses[f.Address] > 0 }

// HasPodAt reports whether other pods reach a known pod by an address.
func (e *Engine) HasPodAt(a netip.Addr) bool { return e.addresses[a] > 0 }

// countAddresses adds the addresses by which other pods reach a pod to those of all pods, or removes them if n is -1. If a Service has one of
// them, the rules of pods change.
func (e *Engine) countAddresses(p *Pod, n int) {
	for i := range p.Interfaces {
		if !p.Interfaces[i].Main && !slices.Contains(p.Interfaces[i].Networks, DefaultNetwork) {
			continue
		}
		for _, a := range p.Interfaces[i].Addresses {
			if e.addresses[a] += n; e.addresses[a] == 0 {
				delete(e.addresses, a)
			}
			if e.external[a] > 0 {
				e.servicesChanged()
			}
		}
	}
}

// countExternal adds the external addresses of a Service to those of all Services, or removes them if n is -1.
func (e *Engine) countExternal(s Service, n int) {
	for _, f := range s.Frontends {
		if !f.External {
			continue
		}
		if e.external[f.Address] += n; e.external[f.Address] == 0 {
			delete(e.external, f.Address)
		}
	}
}

// toServices returns rules for the frontends about which the rules would decide otherwise than about their backends. The node replaces a frontend
// by any of its backends, so a frontend is permitted if all of them are. A pod may contact itself, but by cluster IPs only: users choose the
// other addresses. The given rules match everything.
func (e *Engine) toServices(rules []Rule, i *Interface) []Rule {
	var decided []Rule
	list := List{Rules: rules}
	for _, name := range slices.Sorted(maps.Keys(e.services)) {
		for _, f := range e.services[name].Frontends {
			if len(f.Backends) == 0 || e.isPod(f) {
				continue
			}
			is := Rule{
				Protocol: f.Protocol, Remote: single(f.Address), Ports: Range{f.Port, f.Port},
				Origin: "Service " + name + ": its endpoints are allowed, or the pod itself",
			}
			for _, b := range f.Backends {
				isItself := !f.External && slices.Contains(i.Addresses, b.Addr())
				if why := list.Decide(b.Addr(), f.Protocol, b.Port()); why.Action != Allow && !isItself {
					is.Action, is.Origin = Deny, fmt.Sprintf("%s (an endpoint of Service %s)", why.Origin, name)
					break
				}
			}
			if list.Decide(f.Address, f.Protocol, f.Port).Action != is.Action {
				decided = append(decided, is)
			}
		}
	}
	return decided
}
