package frame

// Free returns the number of free buffers.
func (p *Pool) Free() int { return len(p.free) }
