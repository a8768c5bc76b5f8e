package k8s

// PodsWaiting counts the pods that are to be handled, without the one that is being handled.
func (c *Cluster) PodsWaiting() int { return c.keys.Len() }
