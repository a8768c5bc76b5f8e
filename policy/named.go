package policy

// fewPorts is the number of ports that are compared one by one.
const fewPorts = 8

// setPorts notes the ports of a pod after they changed.
func (p *podState) setPorts(tallies tallies) {
	p.named = nil
	span := 1
	if len(p.Ports) > fewPorts {
		p.named = make(map[string][]NamedPort, len(p.Ports))
		for _, n := range p.Ports {
			p.named[n.Name] = append(p.named[n.Name], n)
		}
	}
	for _, n := range p.Ports {
		span = max(span, p.countNamed(n.Name))
	}
	for g := range p.groups {
		tallies.add(g, p, span-p.span)
	}
	p.span = span
}

// portsOfName lists the ports that may have a name.
func (p *podState) portsOfName(name string) []NamedPort {
	if p.named == nil {
		return p.Ports
	}
	return p.named[name]
}

// countNamed returns the number of ports with a name.
func (p *podState) countNamed(name string) int {
	n := 0
	for _, port := range p.portsOfName(name) {
		if port.Name == name {
			n++
		}
	}
	return n
}
