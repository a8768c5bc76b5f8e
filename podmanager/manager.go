// Package podmanager keeps the attachments of the node: it serves the CNI plugin and turns its calls into events.
package podmanager

import (
	"github.com/weftnet/weft/eventloop"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Manager keeps the attachments and serves weft.v1.RemoteCNI.
type Manager struct {
	weftv1.UnimplementedRemoteCNIServer
	*attachments
	config        Config
	gate          gate
	inputs        *inputs
	attempts      attempts
	claims        claims
	outcomes      outcomes
	announcements announcements
}

// New returns a Manager without attachments. Restore and Register come before the loop runs.
func New(config Config) *Manager {
	config = config.withDefaults()
	known := newAttachments()
	return &Manager{
		attachments:   known,
		config:        config,
		gate:          gate{config.Admission},
		inputs:        newInputs(config),
		attempts:      attempts{loop: config.Loop, refiller: config.Refiller, refillTime: config.RefillTime},
		claims:        claims{objects: config.Claims, log: config.Log},
		outcomes:      outcomes{config.Observe},
		announcements: announcements{attachments: known, announcer: config.Announcer},
	}
}

// Register registers the handlers of attachments. They must be the first.
func (m *Manager) Register(l *eventloop.Loop) {
	h := &handlers{attachments: m.attachments, outcomes: m.outcomes, now: m.config.Now}
	eventloop.On(l, "podmanager", h.TrackPod)
	eventloop.On(l, "podmanager", h.TrackAddresses)
	eventloop.On(l, "podmanager", h.TrackChange)
	eventloop.On(l, "podmanager", h.UntrackPod)
}

// Edits returns the part of the manager that changes connected pods.
func (m *Manager) Edits() *Edits {
	return &Edits{
		attachments: m.attachments,
		gate:        m.gate,
		inputs:      m.inputs,
		attempts:    m.attempts,
		claims:      m.claims,
		log:         m.config.Log,
	}
}
