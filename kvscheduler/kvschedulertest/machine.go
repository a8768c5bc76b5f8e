// Package kvschedulertest is a machine to be configured in tests: it keeps the applied objects, checks every operation
// against the rules of the scheduler, and can be told to fail.
package kvschedulertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weftnet/weft/kvscheduler"
)

// Thing is the value of every kind of the machine. It is comparable.
type Thing struct {
	Version int    // changed in place
	Type    int    // changed by recreating
	Needs   string // refs that must exist, separated by blanks
	Follows string // as Needs, with kvscheduler.Follow
	PartOf  string // as Needs, with kvscheduler.Part
	Near    string // name of a bucket of which some even-versioned member must exist; its first letter is their kind
	Bucket  string // the bucket it is in itself
	Secret  string // redacted, and not to be read back
	Bad     bool   // refused by Validate
	Unread
}

// Unread are fields that Equal ignores, because the machine neither has nor reports them. Dependencies and buckets
// follow them all the same.
type Unread struct {
	Behind    string // as Needs
	BehindAny string // name of a bucket of which some member must exist; its first letter is their kind
	Shelf     string // if set, the bucket it is in instead of Bucket
}

// In returns the bucket that a thing is in.
func (v Thing) In() string {
	if v.Shelf != "" {
		return v.Shelf
	}
	return v.Bucket
}

// Read returns the value without the fields that the machine does not have.
func (v Thing) Read() Thing {
	v.Unread = Unread{}
	return v
}

// Fault is what goes wrong with an operation.
type Fault uint8

// The faults a machine can show.
const (
	Fine      Fault = iota
	Refuse          // the operation has no effect, and the caller learns so
	LoseReply       // done, but the caller does not learn it
	LoseCall        // not done, and the caller does not learn it
)

// Call is one backend call.
type Call struct {
	Kind  kvscheduler.Kind
	Verb  kvscheduler.Verb
	Names []string
}

// Machine is the system that the backends of a test configure.
type Machine struct {
	mu      sync.Mutex
	live    map[kvscheduler.Ref]stored
	calls   []Call
	wrong   []string
	fault   func(verb kvscheduler.Verb, ref kvscheduler.Ref) Fault
	hold    map[kvscheduler.Kind]chan struct{}
	entered chan kvscheduler.Kind
	lost    map[kvscheduler.Ref]Thing // removed by a third party: their dependents are excused
	blind   bool                      // Have may lack a secret: the caller was restarted
	reads   int
	handles int
}

type stored struct {
	v       Thing
	handle  int
	foreign bool
}

// New returns an empty machine.
func New() *Machine {
	return &Machine{live: make(map[kvscheduler.Ref]stored), hold: make(map[kvscheduler.Kind]chan struct{}),
		entered: make(chan kvscheduler.Kind, 1024), lost: make(map[kvscheduler.Ref]Thing)}
}

// Fail makes operations go wrong; nil: none does.
func (m *Machine) Fail(f func(verb kvscheduler.Verb, ref kvscheduler.Ref) Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// Hold makes the calls of a kind hang, whatever their context says, until the returned function is called.
func (m *Machine) Hold(k kvscheduler.Kind) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{})
	m.hold[k] = c
	return sync.OnceFunc(func() {
		m.mu.Lock()
		delete(m.hold, k)
		m.mu.Unlock()
		close(c)
	})
}

// Entered yields the kind of each call that is held.
func (m *Machine) Entered() <-chan kvscheduler.Kind { return m.entered }

// Live returns the applied things, without foreign ones.
func (m *Machine) Live() map[kvscheduler.Ref]Thing {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[kvscheduler.Ref]Thing, len(m.live))
	for r, s := range m.live {
		if !s.foreign {
			out[r] = s.v
		}
	}
	return out
}

// Foreign puts a thing there that is not ours.
func (m *Machine) Foreign(r kvscheduler.Ref, v Thing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handles++
	m.live[r] = stored{v: v, handle: m.handles, foreign: true}
}

// Has tells whether there is something, and whether it is foreign.
func (m *Machine) Has(r kvscheduler.Ref) (there, foreign bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, there := m.live[r]
	return there, s.foreign
}

// Tamper changes things behind the scheduler's back; nil takes them away.
func (m *Machine) Tamper(r kvscheduler.Ref, v *Thing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v == nil {
		m.lost[r] = m.live[r].v
		delete(m.live, r)
		return
	}
	s := m.live[r]
	s.v = *v
	m.live[r] = s
}

// Restarted makes later readers forget the secrets of existing objects.
func (m *Machine) Restarted() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blind = true
}

// Forget empties the machine, as its restart would.
func (m *Machine) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, s := range m.live {
		m.lost[r] = s.v
	}
	clear(m.live)
}

// Calls returns the backend calls since the last time.
func (m *Machine) Calls() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.calls
	m.calls = nil
	return calls
}

// Reads returns how many things were read back since the last time.
func (m *Machine) Reads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.reads
	m.reads = 0
	return n
}

// Wrong returns the broken rules.
func (m *Machine) Wrong() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.wrong)
}

func (m *Machine) blameLocked(format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

// checkLocked looks for a thing with missing dependencies.
func (m *Machine) checkLocked(after string) {
	for r, s := range m.live {
		if s.foreign {
			continue
		}
		for _, need := range strings.Fields(s.v.Needs + " " + s.v.Follows + " " + s.v.PartOf) {
			ref, _ := kvscheduler.ParseRef(need)
			if _, there := m.live[ref]; !there && !m.isLostLocked(ref) {
				m.blameLocked("after %s: %s is there without %s", after, r, need)
			}
		}
		if s.v.Near != "" && !m.nearLocked(s.v.Near) {
			m.blameLocked("after %s: %s is there without an even member of bucket %s", after, r, s.v.Near)
		}
	}
}

func (m *Machine) isLostLocked(r kvscheduler.Ref) bool {
	_, lost := m.lost[r]
	return lost
}

// nearLocked reports whether a bucket has an even member, or had one that a third party removed.
func (m *Machine) nearLocked(bucket string) bool {
	isOne := func(r kvscheduler.Ref, v Thing) bool {
		return string(r.Kind) == bucket[:1] && v.Bucket == bucket && v.Version%2 == 0
	}
	for r, s := range m.live {
		if isOne(r, s.v) {
			return true
		}
	}
	for r, v := range m.lost {
		if isOne(r, v) {
			return true
		}
	}
	return false
}

// Names returns the names of the present things of a kind, sorted.
func (m *Machine) Names(k kvscheduler.Kind) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, r := range slices.Collect(maps.Keys(m.live)) {
		if r.Kind == k {
			out = append(out, r.Name)
		}
	}
	slices.Sort(out)
	return out
}
