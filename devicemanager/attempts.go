package devicemanager

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Limits of the backoff between failed registrations. A new kubelet is tried immediately.
const minPause, maxPause = 100 * time.Millisecond, 10 * time.Second

// attempts says when the next registration may be tried.
type attempts struct {
	kubelet   fileID    // kubelet.sock of the last attempt
	notBefore time.Time // time of the next attempt
	pause     *backoff.ExponentialBackOff
	failures  int // in a row
}

func newAttempts() attempts {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = minPause
	pause.MaxInterval = maxPause
	return attempts{pause: pause}
}

// begin reports whether a registration may be tried now, and remembers the kubelet that is tried.
func (a *attempts) begin(kubelet fileID) bool {
	if kubelet != a.kubelet {
		a.pause.Reset()
		a.notBefore = time.Time{}
		a.failures = 0
	}
	if time.Now().Before(a.notBefore) {
		return false
	}
	a.kubelet = kubelet
	return true
}

// failed delays the next attempt.
func (a *attempts) failed() {
	a.notBefore = time.Now().Add(a.pause.NextBackOff())
	a.failures++
}

// succeeded delays the next attempt too, for a kubelet that accepts and never opens a stream.
func (a *attempts) succeeded() {
	a.notBefore = time.Now().Add(a.pause.NextBackOff())
	a.failures = 0
}
