package podmanager

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/pod"
)

// attachments are the attachments of the node.
type attachments struct {
	mu   sync.Mutex
	pods map[pod.Key]*record
	adds map[pod.Key][]*call // ADD calls under way

	stopping bool // ADDs do not wait any more
}

// record is the state of one attachment. An attachment that awaits addresses counts as complete:
//
//	                AddPod committed and durable
//	being added ---------------------------------> complete
//	     | undone                                      | DeletePod
//	     v                                             v
//	                     not there
type record struct {
	attachment *pod.Attachment // immutable once it is complete
	complete   bool
}

func newAttachments() *attachments {
	return &attachments{pods: make(map[pod.Key]*record), adds: make(map[pod.Key][]*call)}
}

// Restore adds the attachments of the state file. Call it before the loop runs.
func (s *attachments) Restore(attachments []*pod.Attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range attachments {
		s.pods[a.Key] = &record{attachment: clone(a), complete: true}
	}
}

// Attachments returns copies of the complete attachments, oldest first.
func (s *attachments) Attachments() []pod.Attachment {
	all := s.selected(func(*pod.Attachment) bool { return true })
	slices.SortFunc(all, func(a, b pod.Attachment) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return all
}

// OfPod returns copies of the complete attachments of a pod in no particular order. An unknown UID matches each UID.
func (s *attachments) OfPod(id pod.ID) []pod.Attachment {
	return s.selected(func(a *pod.Attachment) bool {
		of := a.Pod
		return of.Namespace == id.Namespace && of.Name == id.Name && (of.UID == "" || id.UID == "" || of.UID == id.UID)
	})
}

// Attachment returns a copy of the complete attachment of key.
func (s *attachments) Attachment(key pod.Key) (pod.Attachment, bool) {
	r := s.find(key)
	if r == nil || !r.complete {
		return pod.Attachment{}, false
	}
	return *clone(r.attachment), true
}

func (s *attachments) selected(is func(*pod.Attachment) bool) []pod.Attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []pod.Attachment
	for _, r := range s.pods {
		if r.complete && is(r.attachment) {
			all = append(all, *clone(r.attachment))
		}
	}
	return all
}

// swap stores r as the record of key, nil deletes it, and returns the previous one.
func (s *attachments) swap(key pod.Key, r *record) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.pods[key]
	if r == nil {
		delete(s.pods, key)
	} else {
		s.pods[key] = r
	}
	return before
}

// isConnected reports whether an ADD of the attachment has succeeded.
func (s *attachments) isConnected(key pod.Key) bool {
	r := s.find(key)
	return r != nil && r.complete
}

func (s *attachments) find(key pod.Key) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[key]
}

// underWay marks an ADD of key until the returned function is called.
func (s *attachments) underWay(key pod.Key, c *call) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adds[key] = append(s.adds[key], c)
	if s.stopping {
		c.cancel(errStopping)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.adds[key] = slices.DeleteFunc(s.adds[key], func(o *call) bool { return o == c })
		if len(s.adds[key]) == 0 {
			delete(s.adds, key)
		}
	}
}

// CancelAdds cancels the ADDs of key that began before, because their DEL is about to be queued. While an event of an
// ADD is queued or running, the event of the DEL cancels it; an ADD that waits for addresses has no event.
func (s *attachments) CancelAdds(key pod.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.adds[key] {
		c.cancel(errDeleted)
	}
}

// EndWaits cancels all ADDs that wait, also later ones, because the agent stops: nothing serves them any more.
func (s *attachments) EndWaits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for _, calls := range s.adds {
		for _, c := range calls {
			c.cancel(errStopping)
		}
	}
}

// cancelOlder cancels the ADDs of older sandboxes of a pod's interface, of which a newer one is added.
func (s *attachments) cancelOlder(newer *pod.Request, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, calls := range s.adds {
		for _, c := range calls {
			if newer.Pod() != "" && c.request.Pod() == newer.Pod() && key.ContainerID != newer.Key.ContainerID {
				c.cancel(cause)
			}
		}
	}
}

// isCreatedBefore reports whether key has a complete attachment that was created by the time t, and no ADD under way.
func (s *attachments) isCreatedBefore(key pod.Key, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.pods[key]
	return ok && r.complete && len(s.adds[key]) == 0 && !r.attachment.Created.After(t)
}

// clone copies an attachment, so that readers and handlers do not share memory.
func clone(a *pod.Attachment) *pod.Attachment {
	c := *a
	c.Annotations = maps.Clone(a.Annotations)
	c.Delegation.Routes = slices.Clone(a.Delegation.Routes)
	c.Interfaces = slices.Clone(a.Interfaces)
	for i := range c.Interfaces {
		in := &c.Interfaces[i]
		in.Pools = slices.Clone(in.Pools)
		in.Addresses = slices.Clone(in.Addresses)
		in.Gateways = slices.Clone(in.Gateways)
		in.Routes = slices.Clone(in.Routes)
	}
	return &c
}
