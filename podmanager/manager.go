// Package podmanager keeps the attachments of the node: it serves the CNI plugin and turns its calls into events.
package podmanager

import (
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Manager keeps the attachments and serves weft.v1.RemoteCNI.
type Manager struct {
	weftv1.UnimplementedRemoteCNIServer
	attachments
	config Config
}

// New returns a Manager without attachments. Restore and Register come before the loop runs.
func New(config Config) *Manager {
	return &Manager{
		config:      config.withDefaults(),
		attachments: attachments{pods: make(map[pod.Key]*record), adds: make(map[pod.Key][]*call)},
	}
}

// Register registers the manager's handlers. They must be the first.
func (m *Manager) Register(l *eventloop.Loop) {
	eventloop.On(l, "podmanager", m.TrackPod)
	eventloop.On(l, "podmanager", m.TrackAddresses)
	eventloop.On(l, "podmanager", m.TrackChange)
	eventloop.On(l, "podmanager", m.UntrackPod)
}
