package pods

// Waiting counts the pods in the queue, without the one that is being handled.
func (ps *Pods) Waiting() int { return ps.keys.Len() }
