package vpp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.fd.io/govpp/api"
	binapi "go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// journal keeps what was applied, as the state file does.
type journal struct {
	mu      sync.Mutex
	entries []kvscheduler.JournalEntry
}

func (j *journal) Append(entries []kvscheduler.JournalEntry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entries...)
	return nil
}

func (j *journal) Load() iter.Seq2[kvscheduler.JournalEntry, error] {
	return func(yield func(kvscheduler.JournalEntry, error) bool) {
		for _, e := range j.entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// restarted is another scheduler before the same dataplane, which knows what the journal does and writes into log.
func (l memifLab) restarted(j *journal, log *bytes.Buffer) memifLab {
	l.Helper()
	logger := slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	next := memifLab{ruins: l.ruins, root: l.root, lab: &lab{T: l.T, client: l.client}}
	next.s = kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}, Journal: j, Logger: logger})
	if err := Register(next.s, l.client); err != nil {
		l.Fatal(err)
	}
	if err := linux.Register(next.s, linux.Options{}); err != nil {
		l.Fatal(err)
	}
	background(l.T, next.s.Run)
	return next
}

// stage makes the objects desired, for the next resync.
func (l memifLab) stage(objects ...object) {
	l.Helper()
	txn := kvscheduler.Txn{Source: "test"}
	for _, o := range objects {
		object, err := l.s.Object(o.key, o.value)
		if err != nil {
			l.Fatal(err)
		}
		txn.Set = append(txn.Set, object)
	}
	if err := l.s.Stage(l.Context(), txn); err != nil {
		l.Fatal(err)
	}
}

// shown returns everything that the scheduler publishes.
func (l memifLab) shown() string {
	l.Helper()
	var all bytes.Buffer
	for _, show := range []func() any{
		func() any {
			var records []*kvscheduler.Record
			for r := range l.s.Log(0) {
				records = append(records, r)
			}
			return records
		},
		func() any { return l.differences() },
		func() any {
			var values []any
			for _, kind := range wire.Kinds() {
				for name, status := range l.s.View().All(kvscheduler.Kind(kind)) {
					v, _ := l.s.View().Desired(ref(kind, name))
					values = append(values, l.s.Redacted(ref(kind, name), v), status, fmt.Sprint(status.Err))
				}
			}
			return values
		},
	} {
		value := show()
		text, err := json.Marshal(value)
		if err != nil {
			l.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %+v %#v\n", text, value, value)
	}
	return all.String()
}

const marker = "m4rk3r-of-23-characters"

// guarded are an allocation and a memif with the marker as its secret, also in a file.
func (l memifLab) guarded() []object {
	on := memifOn("m1", "a", 1).with(func(v *wire.Interface) { v.Memif.Secret = marker })
	all := append(l.allocation("a", 5), on)
	dir := all[0]
	name := strings.TrimPrefix(dir.key, wire.KindFile+"/") + "/secret"
	return append(all, object{
		wire.FileKey(name), wire.File{Type: wire.RegularFile, Mode: 0o400, Secret: marker, On: dir.key},
	})
}

func TestSecretIsOnlyInTheJournal(t *testing.T) {
	var log bytes.Buffer
	j := &journal{}
	l := newMemifLab(t).restarted(j, &log)
	all := l.guarded()
	l.mustCommit(all...)
	// What is refused, and what is changed, made again and removed, is recorded too.
	taken := all[2].with(func(v *wire.Interface) { v.Memif.RingSize = 512 })
	taken.key = wire.InterfaceKey("m2")
	if err := l.commit(taken); err == nil || strings.Contains(err.Error(), marker) {
		t.Errorf("an id twice: %v", err)
	}
	if err := l.commit(all[2].with(func(v *wire.Interface) { v.Memif.Secret += "x" })); err == nil ||
		strings.Contains(err.Error(), marker) {
		t.Errorf("a secret of 24 bytes: %v", err)
	}
	l.mustCommit(all[2].with(func(v *wire.Interface) { v.Memif.RingSize = 512 }))
	_, meta, _ := l.s.View().Applied(ref(wire.KindInterface, "m1"))
	l.client.exchange(t.Context(), deleteMemif("m1", meta.(Index)))
	if shown := l.shown(); strings.Contains(shown, marker) || !strings.Contains(shown, "(secret)") {
		t.Errorf("shown: %s", shown)
	}
	l.resync()
	l.mustCommit(object{all[3].key, nil}, object{all[2].key, nil})
	if shown := l.shown() + log.String(); strings.Contains(shown, marker) {
		t.Errorf("shown: %s", shown)
	}
	text, err := json.Marshal(j.entries)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, e := range j.entries {
		kept += strings.Count(string(e.V), marker)
	}
	if kept < 2 {
		t.Errorf("the journal lost the secret: %s", text)
	}
}

func TestMemifIsRecognisedByTheJournal(t *testing.T) {
	var log bytes.Buffer
	l := newMemifLab(t)
	j := &journal{}
	first := l.restarted(j, &log)
	all := l.guarded()
	first.mustCommit(all...)
	again := first.restarted(&journal{entries: j.entries}, &log)
	again.stage(all...)
	again.s.Ready("test")
	again.resync()
	again.quiet()
	for r := range again.s.Log(0) {
		for _, op := range r.Ops {
			t.Errorf("%s %s because of %s", op.Verb, op.Ref, op.Why)
		}
	}
}

func TestRedactedAndStoredForms(t *testing.T) {
	d := interfaceDescriptor(nil)
	v := memifOn("m1", "a", 1).value.(wire.Interface)
	if got := d.Redact(v); string(got.Memif.Secret) != "(secret)" || string(v.Memif.Secret) != "open sesame" {
		t.Errorf("redacted %q, value %q", string(got.Memif.Secret), string(v.Memif.Secret))
	}
	tap := wire.Interface{Type: wire.TypeTap, MAC: mac1, MTU: 1500, Up: true, Tap: wire.Tap{Name: "eth0", MAC: mac2}}
	for _, v := range []wire.Interface{v, tap, {Type: wire.TypeLoopback}} {
		b, err := d.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.Decode(b); err != nil || got != v || string(got.Memif.Secret) != string(v.Memif.Secret) {
			t.Errorf("%s reads as %+v, error %v", b, got, err)
		}
		usual, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if v.Type != wire.TypeMemif && !bytes.Equal(b, usual) { // journals of an older agent
			t.Errorf("stored as %s, formerly as %s", b, usual)
		}
	}
}

func TestMemifIsMadeInTheOrderThatVPPNeeds(t *testing.T) {
	var sent []string
	p := &peer{t: t}
	p.answer = func(c *call) ([]api.Message, bool) {
		switch m := c.msg.(type) {
		case *binapi.MemifSocketFilenameAddDelV2:
			sent = append(sent, fmt.Sprintf("socket %v %d %s", m.IsAdd, m.SocketID, m.SocketFilename))
		case *binapi.MemifCreateV2:
			sent = append(sent,
				fmt.Sprintf("create %s %s %d/%d rings %d buffers %d queues %d %d no-zero-copy %v secret %v", m.Role,
					m.Mode, m.SocketID, m.ID,
					m.RingSize, m.BufferSize, m.RxQueues, m.TxQueues, m.NoZeroCopy, m.Secret == marker))
			return []api.Message{&binapi.MemifCreateV2Reply{SwIfIndex: 77}}, false
		}
		if name := c.msg.GetMessageName(); strings.HasPrefix(name, "sw_interface_") &&
			!strings.HasSuffix(name, "_dump") {
			sent = append(sent, name)
		}
		return obliging(c)
	}
	p.listen()
	c := connect(t, p.socket, Options{})
	socket := []memifSocketItem{{Name: "a", Want: wire.MemifSocket{ID: 5, Path: "/run/weft/memif/a/memif.sock"}}}
	memifSockets{c: c}.Create(t.Context(), socket)
	v := memifOn("m1", "a", 1).with(func(v *wire.Interface) {
		v.Memif.Secret = marker
		v.Memif.RxQueues = 2
	}).value.(wire.Interface)
	on := []interfaceItem{{Name: "m1", Want: v, Handles: []any{socket[0].NewMeta}}}
	ifaces{c}.Create(t.Context(), on)
	if socket[0].Err != nil || on[0].Err != nil || on[0].NewMeta != 77 {
		t.Fatalf("socket %v, interface %v with number %d", socket[0].Err, on[0].Err, on[0].NewMeta)
	}
	want := []string{
		"socket true 5 /run/weft/memif/a/memif.sock",
		"create MEMIF_ROLE_API_MASTER MEMIF_MODE_API_ETHERNET 5/1 rings 1024 buffers 2048 queues 2 1 no-zero-copy true secret true",
		"sw_interface_tag_add_del", "sw_interface_set_mtu", "sw_interface_set_flags",
	}
	if strings.Join(sent, "\n") != strings.Join(want, "\n") {
		t.Errorf("sent:\n%s\nwant:\n%s", strings.Join(sent, "\n"), strings.Join(want, "\n"))
	}
}
