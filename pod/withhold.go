package pod

// WithholdPods makes Keys the attachments whose objects in the dataplane are not desired, in place of those before. Their
// objects in the kernel, addresses and memif directories stay.
type WithholdPods struct {
	Keys   []Key
	Reason string // one line, which logs and records show
}

// String names the event as logs and records show it.
func (e *WithholdPods) String() string { return e.Reason }

// BestEffort keeps what was committed when the dataplane dies meanwhile.
func (e *WithholdPods) BestEffort() bool { return true }
