package devicemanager

import "sync"

// streams counts the open streams of ListAndWatch: without one, kubelet does not know of our devices.
type streams struct {
	ended chan struct{} // told when one has ended; holds one

	mu     sync.Mutex
	count  int
	opened uint64 // ever
}

func newStreams() *streams { return &streams{ended: make(chan struct{}, 1)} }

// open counts a stream until the returned function is called.
func (s *streams) open() (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.opened++
	return func() {
		s.close()
		select {
		case s.ended <- struct{}{}:
		default:
		}
	}
}

func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
}

// state is how many streams are open, and how many ever were.
func (s *streams) state() (open int, opened uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.opened
}
