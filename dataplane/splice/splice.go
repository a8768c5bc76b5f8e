// Package splice applies the objects of kind linux.memif-splice: it connects the memifs of two pods without the
// dataplane.
package splice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"path"
	"strings"
	"sync"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/wire"
)

// BrokerArgument is the argument with which a program that has Splices must call [ServeBroker].
const BrokerArgument = "memif-broker"

// ServeBroker is the process that holds the control sockets of pods. It calls confine before it serves them.
func ServeBroker(confine func()) error { return memif.ServeBroker(confine) }

// Splices holds the splices of this process. The first one starts the broker process.
type Splices struct {
	log *slog.Logger

	mu     sync.Mutex
	broker *memif.Broker
	all    map[string]open // by path of the client's socket
}

type open struct {
	*memif.Splice
	value wire.MemifSplice
}

// New returns no splices.
func New(log *slog.Logger) *Splices { return &Splices{log: log, all: make(map[string]open)} }

// Close closes all splices and ends the broker process.
func (s *Splices) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, o := range s.all {
		o.Close()
		delete(s.all, name)
	}
	if s.broker != nil {
		s.broker.Close()
		s.broker = nil
	}
}

// State reports whether client and server of a splice are connected, or why the server was not reached for the last
// client. exists is false if there is no such splice.
func (s *Splices) State(socket string) (connected, exists bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, exists := s.all[socket]
	if !exists {
		return false, false, nil
	}
	connected, err = o.State()
	return connected, true, err
}

// Register adds the kind to a scheduler.
func Register(s *kvscheduler.Scheduler, splices *Splices) error {
	err := kvscheduler.Register(s, kvscheduler.Descriptor[wire.MemifSplice, struct{}]{
		Name: wire.KindMemifSplice, Lane: wire.KindMemifSplice,
		Equal:    func(want, have wire.MemifSplice) bool { return want == have },
		Validate: validate,
		Deps:     deps,
		Recreate: func(_, _ wire.MemifSplice) bool { return true },
		Redact:   redact,
		Encode:   encode,
		Decode:   decode,
		Backend:  splices,
	})
	return err
}

// maxPath is the length of a socket's path, bytes.
const maxPath = 107

func validate(name string, v wire.MemifSplice) error {
	switch {
	case !path.IsAbs(name) || path.Clean(name) != name || len(name) > maxPath:
		return fmt.Errorf("socket %q is not an absolute, clean path of at most %d bytes", name, maxPath)
	case !strings.HasPrefix(v.Server, "@") || len(v.Server) < 2 || len(v.Server) > maxPath ||
		strings.ContainsRune(v.Server, 0):
		return fmt.Errorf("server %q is not \"@\" and the name of an abstract socket", v.Server)
	case v.Namespace.Path == "":
		return errors.New("the network namespace of the server is missing")
	case v.ClientSecret == "" || v.ServerSecret == "":
		return errors.New("a secret is missing")
	}
	_, err := kvscheduler.ParseRef(v.Directory)
	return err
}

func deps(_ string, v wire.MemifSplice) []kvscheduler.Dep {
	directory, _ := kvscheduler.ParseRef(v.Directory) // validated
	return []kvscheduler.Dep{
		{Label: "directory", On: directory},
		{
			Label: "network namespace of the server",
			On:    kvscheduler.Ref{Kind: wire.KindNamespace, Name: v.Namespace.Path},
		},
	}
}

func redact(v wire.MemifSplice) wire.MemifSplice {
	v.ClientSecret = secret.Hidden
	v.ServerSecret = secret.Hidden
	return v
}

// stored is the encoding of a splice in the journal, which includes the secrets.
type stored struct {
	wire.MemifSplice
	ClientSecret string `json:"clientSecret"`
	ServerSecret string `json:"serverSecret"`
}

func encode(v wire.MemifSplice) ([]byte, error) {
	return json.Marshal(stored{v, string(v.ClientSecret), string(v.ServerSecret)})
}

func decode(b []byte) (wire.MemifSplice, error) {
	var s stored
	err := json.Unmarshal(b, &s)
	v := s.MemifSplice
	v.ClientSecret = secret.Text(s.ClientSecret)
	v.ServerSecret = secret.Text(s.ServerSecret)
	return v, err
}

type item = kvscheduler.Item[wire.MemifSplice, struct{}]

// Create binds the sockets.
func (s *Splices) Create(_ context.Context, batch []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		if err := s.open(batch[i].Name, batch[i].Want); err != nil {
			batch[i].Err = &kvscheduler.OpError{Err: err, Outcome: kvscheduler.NotApplied}
		}
	}
}

func (s *Splices) open(name string, v wire.MemifSplice) (err error) {
	if s.broker == nil {
		if s.broker, err = memif.StartBroker(s.log, BrokerArgument); err != nil {
			return err
		}
	}
	splice, err := s.broker.Splice(memif.SpliceConfig{
		Path:         name,
		ClientID:     v.ClientID,
		ClientSecret: memif.Secret(v.ClientSecret),
		ServerID:     v.ServerID,
		ServerSecret: memif.Secret(v.ServerSecret),
		Dial:         func() (*net.UnixConn, error) { return linux.DialAbstract(v.Namespace, v.Server) },
	})
	if err != nil {
		return err
	}
	s.all[name] = open{splice, v}
	return nil
}

// Update is not called: each change recreates a splice.
func (s *Splices) Update(ctx context.Context, batch []item) { s.Create(ctx, batch) }

// Delete ends the connections.
func (s *Splices) Delete(_ context.Context, batch []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		if o, exists := s.all[batch[i].Name]; exists {
			o.Close()
			delete(s.all, batch[i].Name)
		}
	}
}

// Dump lists the splices of this process: splices of an earlier process ended with it.
func (s *Splices) Dump(
	context.Context, kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[wire.MemifSplice, struct{}], error] {
	return func(yield func(kvscheduler.Actual[wire.MemifSplice, struct{}], error) bool) {
		for _, a := range s.actual() {
			if !yield(a, nil) {
				return
			}
		}
	}
}

func (s *Splices) actual() (all []kvscheduler.Actual[wire.MemifSplice, struct{}]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, o := range s.all {
		all = append(all, kvscheduler.Actual[wire.MemifSplice, struct{}]{Name: name, V: o.value})
	}
	return all
}
