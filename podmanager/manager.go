// Package podmanager keeps the attachments of the node: it serves the CNI plugin and turns its calls into events.
package podmanager

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Manager keeps the attachments and serves weft.v1.RemoteCNI.
type Manager struct {
	weftv1.UnimplementedRemoteCNIServer
	config Config

	mu   sync.Mutex
	pods map[pod.Key]*record
	adds map[pod.Key]int // ADD calls under way
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

// New returns a Manager without attachments. Restore and Register come before the loop runs.
func New(config Config) *Manager {
	return &Manager{config: config.withDefaults(), pods: make(map[pod.Key]*record), adds: make(map[pod.Key]int)}
}

// Register registers the manager's handlers. They must be the first.
func (m *Manager) Register(l *eventloop.Loop) {
	eventloop.On(l, "podmanager", m.TrackPod)
	eventloop.On(l, "podmanager", m.TrackAddresses)
	eventloop.On(l, "podmanager", m.UntrackPod)
}

// Restore adds the attachments of the state file. Call it before the loop runs.
func (m *Manager) Restore(attachments []*pod.Attachment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range attachments {
		m.pods[a.Key] = &record{attachment: clone(a), complete: true}
	}
}

// Attachments returns copies of the complete attachments, oldest first.
func (m *Manager) Attachments() []pod.Attachment {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []pod.Attachment
	for _, r := range m.pods {
		if r.complete {
			all = append(all, *clone(r.attachment))
		}
	}
	slices.SortFunc(all, func(a, b pod.Attachment) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return all
}

// OfPod returns copies of the complete attachments of a pod in no particular order. An unknown UID matches each UID.
func (m *Manager) OfPod(id pod.ID) []pod.Attachment {
	m.mu.Lock()
	defer m.mu.Unlock()
	var its []pod.Attachment
	for _, r := range m.pods {
		of := r.attachment.Pod
		isIts := of.Namespace == id.Namespace && of.Name == id.Name && (of.UID == "" || id.UID == "" || of.UID == id.UID)
		if r.complete && isIts {
			its = append(its, *clone(r.attachment))
		}
	}
	return its
}

// Attachment returns a copy of the complete attachment of key.
func (m *Manager) Attachment(key pod.Key) (pod.Attachment, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.pods[key]
	if !ok || !r.complete {
		return pod.Attachment{}, false
	}
	return *clone(r.attachment), true
}

// swap stores r as the record of key, nil deletes it, and returns the previous one.
func (m *Manager) swap(key pod.Key, r *record) *record {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.pods[key]
	if r == nil {
		delete(m.pods, key)
	} else {
		m.pods[key] = r
	}
	return before
}

func (m *Manager) find(key pod.Key) *record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[key]
}

// clone copies an attachment, so that readers and handlers share nothing.
func clone(a *pod.Attachment) *pod.Attachment {
	c := *a
	c.Annotations = maps.Clone(a.Annotations)
	c.Delegation.Routes = slices.Clone(a.Delegation.Routes)
	c.Interfaces = slices.Clone(a.Interfaces)
	for i := range c.Interfaces {
		in := &c.Interfaces[i]
		in.Pools, in.Addresses = slices.Clone(in.Pools), slices.Clone(in.Addresses)
		in.Gateways, in.Routes = slices.Clone(in.Gateways), slices.Clone(in.Routes)
	}
	return &c
}
