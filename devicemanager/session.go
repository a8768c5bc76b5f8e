package devicemanager

import "time"

const (
	// streamGrace is the time that kubelet may take after a registration to open ListAndWatch.
	streamGrace = 2 * time.Second

	// streamPause is the time without a stream, after the first one, before the next registration. Kubelet replaces the
	// stream on a second registration, and a third one at that moment would fail its requests.
	streamPause = 300 * time.Millisecond
)

// session is the last successful registration: a kubelet and the streams that it has opened since.
type session struct {
	kubelet       fileID // its kubelet.sock; zero without a session
	began         time.Time
	opened        uint64    // number of streams before the registration
	noStreamSince time.Time // zero while there is a stream
}

// begin starts a session with a kubelet.
func (s *session) begin(kubelet fileID) {
	s.kubelet = kubelet
	s.began = time.Now()
	s.noStreamSince = time.Time{}
}

// isFollowed reports whether kubelet watches the devices, or may still open its stream.
func (s *session) isFollowed(open int, opened uint64) bool {
	if open > 0 {
		s.noStreamSince = time.Time{}
		return true
	}
	if s.noStreamSince.IsZero() {
		s.noStreamSince = time.Now()
	}
	if opened == s.opened {
		return time.Since(s.began) < streamGrace
	}
	return time.Since(s.noStreamSince) < streamPause
}
