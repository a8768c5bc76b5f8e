package frame

// cacheLine is added to the distance of two buffers so that their headers fall into different cache sets.
const cacheLine = 64

// Pool is a stack of preallocated buffers. It has no lock: it belongs to one goroutine.
type Pool struct {
	free []*Buffer
	size int
}

// NewPool makes count buffers that hold frames of up to size bytes. Memory that is never touched is never resident.
func NewPool(size, count int) *Pool {
	stride := (HeadRoom+size+cacheLine-1)/cacheLine*cacheLine + cacheLine
	slab := make([]byte, stride*count)
	all := make([]Buffer, count)
	p := &Pool{free: make([]*Buffer, count), size: size}
	for i := range all {
		at := i * stride
		all[i] = Buffer{mem: slab[at : at+HeadRoom+size : at+HeadRoom+size], pool: p}
		all[i].reset()
		p.free[i] = &all[i]
	}
	return p
}

// Take fills v with empty buffers and returns how many it had.
func (p *Pool) Take(v []*Buffer) int {
	n := min(len(v), len(p.free))
	rest := len(p.free) - n
	copy(v, p.free[rest:])
	p.free = p.free[:rest]
	return n
}

// One takes a single buffer, or nil.
func (p *Pool) One() *Buffer {
	last := len(p.free) - 1
	if last < 0 {
		return nil
	}
	b := p.free[last]
	p.free = p.free[:last]
	return b
}

// Free returns how many buffers are left.
func (p *Pool) Free() int { return len(p.free) }

// Size returns the longest frame its buffers hold.
func (p *Pool) Size() int { return p.size }

// Put takes back buffers of this pool.
func (p *Pool) Put(v []*Buffer) {
	Reset(v)
	p.free = append(p.free, v...)
}

func (p *Pool) put(b *Buffer) {
	b.reset()
	p.free = append(p.free, b)
}
