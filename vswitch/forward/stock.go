package forward

import "github.com/weftnet/weft/vswitch/frame"

// poolSize is the number of a worker's buffers: a vector's empty ones, and as many on their way out.
const poolSize = 2 * frame.VectorSize

// stock holds a worker's empty buffers.
type stock struct {
	pool  *frame.Pool
	empty []*frame.Buffer // for the next vector, those first that were used last
}

func newStock() stock {
	return stock{pool: frame.NewPool(frame.LargeSize, poolSize), empty: make([]*frame.Buffer, 0, frame.VectorSize)}
}

// forVector returns buffers to receive n frames into, or fewer if the pool is short of them.
func (s *stock) forVector(n int) []*frame.Buffer {
	if len(s.empty) < n {
		s.refill(0)
	}
	return s.empty[:min(n, len(s.empty))]
}

// refill puts the buffers that were released last in the place of the first used ones, so that the next frames come into
// memory that the processor's cache still has. The pool may be short of some.
func (s *stock) refill(used int) {
	got := s.pool.Take(s.empty[:used])
	if got < used {
		s.empty = s.empty[:got+copy(s.empty[got:], s.empty[used:])]
	}
	ready := len(s.empty)
	s.empty = s.empty[:frame.VectorSize]
	s.empty = s.empty[:ready+s.pool.Take(s.empty[ready:])]
}
