package frame

// Pool is a stack of preallocated buffers. It belongs to one goroutine and has no lock.
type Pool struct {
	free []*Buffer
}

// NewPool allocates count buffers for frames of up to size bytes. Untouched memory is never resident.
func NewPool(size, count int) *Pool {
	stride := (HeadRoom+size+line-1)/line*line + line // one more line, so that frames are in different cache sets
	slab := make([]byte, stride*count)
	all := make([]Buffer, count)
	p := &Pool{free: make([]*Buffer, count)}
	for i := range all {
		at := i * stride
		all[i] = Buffer{mem: slab[at : at+HeadRoom+size : at+HeadRoom+size], pool: p}
		all[i].reset()
		p.free[i] = &all[i]
	}
	return p
}

// Take fills v with empty buffers and returns their number.
func (p *Pool) Take(v []*Buffer) int {
	n := min(len(v), len(p.free))
	rest := len(p.free) - n
	copy(v, p.free[rest:])
	p.free = p.free[:rest]
	return n
}

// One returns a buffer, or nil.
func (p *Pool) One() *Buffer {
	last := len(p.free) - 1
	if last < 0 {
		return nil
	}
	b := p.free[last]
	p.free = p.free[:last]
	return b
}

// Put returns buffers to the pool.
func (p *Pool) Put(v []*Buffer) {
	Reset(v)
	p.free = append(p.free, v...)
}

func (p *Pool) put(b *Buffer) {
	b.reset()
	p.free = append(p.free, b)
}
