package pod

// Delegation is what a foreign IPAM plugin gave beside addresses. It is kept with the attachment, so that a repeated ADD
// has the same result.
type Delegation struct {
	Routes []Route `json:"routes,omitempty"`
	DNS    DNS     `json:"dns,omitzero"`
}

// IsZero reports whether it gave nothing.
func (d Delegation) IsZero() bool { return len(d.Routes) == 0 && d.DNS.IsZero() }

// DNS is that of a CNI result: what a pod's resolver is to be told.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// IsZero reports whether there is nothing to be told.
func (d DNS) IsZero() bool {
	return len(d.Nameservers) == 0 && d.Domain == "" && len(d.Search) == 0 && len(d.Options) == 0
}
