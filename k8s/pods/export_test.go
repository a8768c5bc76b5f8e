package pods

// Waiting counts the pods that are to be handled, without the one that is being handled.
func (ps *Pods) Waiting() int { return ps.keys.Len() }
