package nodeview

// Sees reports whether the watch of a kind of grant shows an object of the test.
func (c *Cluster) Sees(kind string) bool {
	switch kind {
	case "node":
		_, seen := c.addressing.machines.One("n2")
		return seen
	case "block":
		return len(c.foreign.All()) > 0
	case "pool":
		return len(c.addressing.pools.watched.All()) > 0
	}
	return len(c.nodes.All()) > 0
}

// Has reports whether the watches have these versions of node n2 and of the one block of other nodes.
func (c *Cluster) Has(node, block string) bool {
	n, _ := c.addressing.machines.One("n2")
	all := c.foreign.All()
	return n != nil && n.ResourceVersion == node && len(all) == 1 && all[0].ResourceVersion == block
}
