package vpp

import (
	"encoding/binary"
	"sync"
	"time"

	"go.fd.io/govpp/api"
)

// pending are the requests of a session without an answer. Events have no request: their subscriber gets them.
type pending struct {
	mu      sync.Mutex
	event   uint16 // message number of interface events; 0: not subscribed
	onEvent func([]byte)
	waiting map[uint32]*request // by context
	shifted map[uint16]bool     // message numbers of answers with the header of a request
	context uint32              // of the last request
	heard   time.Time           // time of the last answer
	err     error               // why the session ended; nil before
}

func newPending() *pending {
	return &pending{waiting: map[uint32]*request{}, shifted: map[uint16]bool{}}
}

// add gives a request its context. It fails after the end of the session.
func (p *pending) add(r *request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	p.context++
	if p.context == 0 { // means "no context" to VPP
		p.context++
	}
	p.waiting[p.context] = r
	if r.reply.GetMessageType() == api.RequestMessage { // VPP declares some details with a client index
		p.shifted[r.replyID] = true
	}
	r.context = p.context
	r.sent = true
	return nil
}

// subscribe passes messages with a number to handle.
func (p *pending) subscribe(event uint16, handle func(data []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.event = event
	p.onEvent = handle
}

// receive passes a message to its request, or to the subscriber of events.
func (p *pending) receive(data []byte) {
	id := binary.BigEndian.Uint16(data)
	context := binary.BigEndian.Uint32(data[2:])
	p.mu.Lock()
	p.heard = time.Now()
	if p.event != 0 && id == p.event {
		p.mu.Unlock()
		p.onEvent(data)
		return
	}
	if p.shifted[id] && len(data) >= requestHeader {
		context = binary.BigEndian.Uint32(data[6:])
	}
	r := p.waiting[context]
	if r != nil && r.last(id) {
		delete(p.waiting, context)
		if r.pingOf != nil {
			delete(p.waiting, r.pingOf.context)
		}
	}
	p.mu.Unlock()
	if r != nil {
		r.answer(id, data)
	}
}

// isAtEarlier reports whether the dataplane has answered within the limit and requests older than r are pending.
func (p *pending) isAtEarlier(r *request, limit time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.heard) >= limit {
		return false
	}
	for context := range p.waiting {
		if int32(context-r.context) < 0 {
			return true
		}
	}
	return false
}

// abandon drops requests with answers that no caller waits for.
func (p *pending) abandon(requests []*request, err error) {
	p.mu.Lock()
	gone := make(map[*request]bool, len(requests))
	for _, r := range requests {
		gone[r] = true
	}
	for context, r := range p.waiting {
		if gone[r] || r.pingOf != nil && gone[r.pingOf] {
			delete(p.waiting, context)
		}
	}
	p.mu.Unlock()
	for _, r := range requests {
		r.finish(err)
	}
}

// end fails all requests, now and later. The first call sets the reason, and returns true.
func (p *pending) end(err error) (isFirst bool) {
	p.mu.Lock()
	isFirst = p.err == nil
	if isFirst {
		p.err = err
	}
	reason := p.err
	lost := p.waiting
	p.waiting = map[uint32]*request{}
	p.mu.Unlock()
	for _, r := range lost {
		r.finish(reason)
	}
	return isFirst
}

// ended returns the reason of the end; nil before.
func (p *pending) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
