package k8s

// PodsWaiting counts the pods that are to be handled, without the one that is being handled.
func (c *Cluster) PodsWaiting() int { return c.keys.Len() }

// Sees reports whether the watch of a kind of grant has an object that a test made.
func (c *Cluster) Sees(kind string) bool {
	switch kind {
	case "node":
		_, seen := c.machines.one("n2")
		return seen
	case "block":
		return len(c.foreign.all()) > 0
	case "pool":
		return len(c.pools.all()) > 0
	}
	return len(c.nodes.all()) > 0
}

// Has reports whether the watches have these versions of node n2 and of the one block of other nodes.
func (c *Cluster) Has(node, block string) bool {
	n, _ := c.machines.one("n2")
	all := c.foreign.all()
	return n != nil && n.ResourceVersion == node && len(all) == 1 && all[0].ResourceVersion == block
}
