package metrics

import "time"

// Results of a transaction that was taken back.
const (
	RolledBack         = "undone"     // everything is as it was before
	RollbackIncomplete = "incomplete" // something could not be put back, and is retried
)

// Request notes an answer to the CNI plugin. code is the error's in the specification of CNI, "0" for none; where there
// was no answer of that form it is the name of gRPC's code.
func (m *Metrics) Request(verb, code string, took time.Duration) {
	m.requests.WithLabelValues(verb, code).Observe(took.Seconds())
}

// Event is an event that was handled, by the name of its type.
type Event struct {
	Name     string
	Waited   time.Duration
	Phases   map[string]time.Duration
	Handlers map[string]time.Duration
}

// Event notes an event that was handled.
func (m *Metrics) Event(e Event) {
	m.queueWait.Observe(e.Waited.Seconds())
	for phase, took := range e.Phases {
		m.events.WithLabelValues(e.Name, phase).Observe(took.Seconds())
	}
	for handler, took := range e.Handlers {
		m.handlers.WithLabelValues(e.Name, handler).Observe(took.Seconds())
	}
}

// Operation notes an operation on an object of a kind.
func (m *Metrics) Operation(kind, verb, result string) {
	m.operations.WithLabelValues(kind, verb, result).Inc()
}

// Rollback notes a transaction that was taken back.
func (m *Metrics) Rollback(result string) { m.rollbacks.WithLabelValues(result).Inc() }

// Drift notes an object that was found other than it had been left.
func (m *Metrics) Drift(kind string) { m.drift.WithLabelValues(kind).Inc() }

// Reconnected notes that the dataplane was connected again.
func (m *Metrics) Reconnected() { m.reconnects.Inc() }

// Replayed notes that a dataplane which was connected again has been brought to what is desired.
func (m *Metrics) Replayed(took time.Duration) { m.replay.Observe(took.Seconds()) }

// Committed notes a durable write of the state file.
func (m *Metrics) Committed(took time.Duration) { m.commit.Observe(took.Seconds()) }
