package failures_test

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/programs"
)

// supervised is a dataplane that is restarted whenever it ends, as by a DaemonSet.
type supervised struct {
	*dataplane.Dataplane
	kills   chan struct{} // a token requests a kill
	closing chan struct{}
	done    chan error
}

func supervise(s *scene) *supervised {
	s.Helper()
	d, err := dataplane.New(dataplane.Options{Programs: programs.Build(s.T)})
	must.Succeed(s.T, err)
	v := &supervised{d, make(chan struct{}), make(chan struct{}), make(chan error, 1)}
	must.Succeed(s.T, d.Start(s.Context()))
	go func() { v.done <- v.run() }()
	s.Cleanup(func() {
		close(v.closing)
		must.Succeed(s.T, <-v.done)
	})
	return v
}

func (v *supervised) run() error {
	for {
		select {
		case <-v.closing:
			return v.Close()
		case <-v.kills:
			if err := errors.Join(v.Kill(), v.Start(context.Background())); err != nil {
				return errors.Join(err, v.Close())
			}
		}
	}
}

// crashDataplane makes the interface of a pod kill the dataplane.
func crashDataplane(s *scene, broken bool) {
	proxy, flags := behindProxy(s)
	s.start(flags...)
	p := s.pod("a", "")
	s.add(p, false)
	if !broken {
		return
	}
	var reply struct {
		Attachments []struct {
			Interfaces []struct{ Object string }
		}
	}
	text, err := s.Weftctl(s.Context(), "attachments", "-o", "json")
	must.Succeed(s.T, errors.Join(err, json.Unmarshal([]byte(text), &reply)))
	kill := func() { s.kills <- struct{}{} }
	proxy.Kill("sw_interface_tag_add_del", reply.Attachments[0].Interfaces[0].Object, kill)
	kill()
}
