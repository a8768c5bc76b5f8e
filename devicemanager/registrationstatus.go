package devicemanager

import (
	"maps"
	"sync"
)

// registrationStatus says whether the plugin is registered, for conditions and metrics.
type registrationStatus struct {
	mu            sync.Mutex
	registered    bool
	reason        string // why it is not registered
	registrations map[string]uint64
}

func newRegistrationStatus() *registrationStatus {
	return &registrationStatus{registrations: map[string]uint64{"ok": 0, "error": 0}}
}

// count counts an attempt by its result.
func (s *registrationStatus) count(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = ""
	if err != nil {
		s.reason = "memif devices are not registered, retrying: " + err.Error()
		s.registrations["error"]++
		return
	}
	s.registrations["ok"]++
	s.registered = true
}

// setReason records why the plugin is not registered.
func (s *registrationStatus) setReason(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = reason
}

// read returns the status and the number of attempts by result.
func (s *registrationStatus) read() (registered bool, reason string, registrations map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registered, s.reason, maps.Clone(s.registrations)
}

// lost marks the plugin as not registered.
func (s *registrationStatus) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered = false
}
