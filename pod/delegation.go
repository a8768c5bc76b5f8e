package pod

import (
	"context"
	"slices"
)

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

// AddressPod gives an attachment that awaits them the addresses of its main interface: Requested has what the foreign IPAM
// plugin gave, the rest of it is empty. When it fails the attachment awaits them still.
type AddressPod struct {
	Key       Key
	ID        ID // for people
	Requested Requested

	// Prepare completes Requested before the event is queued; nil: it is complete.
	Prepare func(*AddressPod) error

	// Attachment is made by the first handler and completed by the others. With Repeated it has its addresses already,
	// and nothing is to be done.
	Attachment *Attachment
	Repeated   bool
}

// Main is the place of the main interface in Attachment; -1 if that has none.
func (e *AddressPod) Main() int {
	return slices.IndexFunc(e.Attachment.Interfaces, func(i Interface) bool { return i.Name == e.Key.IfName })
}

// String names the event as logs and records show it.
func (e *AddressPod) String() string { return "address " + describe(e.ID, e.Key) }

// Subject is the attachment: a DeletePod of the same one cancels this event.
func (e *AddressPod) Subject() string { return e.Key.String() }

// Load completes the request's part.
func (e *AddressPod) Load(context.Context) error {
	if e.Prepare == nil {
		return nil
	}
	return e.Prepare(e)
}

// Validate refuses a key that cannot be one.
func (e *AddressPod) Validate() error { return e.Key.Validate() }
