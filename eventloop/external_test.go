package eventloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
)

// port is a value that external configuration changes.
type port struct {
	MTU  int    `json:"mtu,omitempty"`
	Note string `json:"note,omitempty"`
}

// portCodec rejects small MTUs, and panics for the note "panic".
type portCodec struct{}

func (portCodec) Encode(_ string, v any) ([]byte, error) { return json.Marshal(v) }

func (portCodec) Decode(_ string, b []byte) (any, error) {
	var p port
	err := json.Unmarshal(b, &p)
	return p, err
}

func (portCodec) Validate(_ string, v any) error {
	p := v.(port)
	if p.Note == "panic" {
		panic("codec")
	}
	if p.MTU < 68 {
		return fmt.Errorf("mtu %d is less than 68", p.MTU)
	}
	return nil
}

// connect puts and deletes ports.
type connect struct {
	put    map[string]port
	delete []string
	fail   error
}

func (c *connect) String() string { return "connect" }

// plant is a loop with one handler, of ports.
type plant struct {
	*eventloop.Loop
	committer *eventlooptest.Committer
	ports     map[string]port
}

func newPlant(t *testing.T) *plant {
	p := &plant{committer: &eventlooptest.Committer{}, ports: map[string]port{}}
	p.Loop = eventloop.New(eventloop.Config{
		Committer: p.committer, External: portCodec{}, Verify: true,
		OnVerify: func(found []string) { t.Errorf("verification found %v", found) },
	})
	eventloop.On(p.Loop, "ports", func(_ context.Context, c *connect, txn *eventloop.Txn) error {
		for key, v := range c.put {
			txn.Put(key, v)
			txn.OnCommit(func() { p.ports[key] = v })
		}
		for _, key := range c.delete {
			txn.Delete(key)
			txn.OnCommit(func() { delete(p.ports, key) })
		}
		return c.fail
	})
	p.OnResync("ports", func(_ context.Context, txn *eventloop.Txn) error {
		for key, v := range p.ports {
			txn.Put(key, v)
		}
		return nil
	})
	return p
}

func (p *plant) set(t *testing.T, source string, values map[string]string) {
	t.Helper()
	raw := map[string][]byte{}
	for key, v := range values {
		raw[key] = []byte(v)
	}
	if _, err := p.SetExternal(t.Context(), source, raw); err != nil {
		t.Errorf("set external configuration %s: %v", source, err)
	}
}

func (p *plant) do(t *testing.T, ev eventloop.Event) *eventloop.Record {
	t.Helper()
	rec, err := p.Do(t.Context(), ev)
	if err != nil {
		t.Errorf("%s: %v", ev, err)
	}
	return rec
}

// expect compares the committed values of handlers and of external configuration.
func (p *plant) expect(t *testing.T, own, external string) {
	t.Helper()
	for got, want := range map[string]string{
		fmt.Sprint(p.committer.Values()):         own,
		fmt.Sprint(p.committer.External()) + " ": external + " ",
	} {
		if got != want {
			t.Errorf("committed %s, want %s", got, want)
		}
	}
}

func TestStep8ExternalConfigurationMayComeFirst(t *testing.T) {
	p := newPlant(t)
	p.ports["z"] = port{MTU: 1280} // known from before, no difference until the resync
	eventlooptest.Run(t, p.Loop)
	p.set(t, "file", map[string]string{"a": `{"mtu":9000}`, "x": `{"mtu":100}`})
	p.do(t, eventloop.Resynchronize{Kind: eventloop.Full, Reason: "start"})
	p.do(t, &connect{delete: []string{"z"}})
}

func TestStep8MergesExternalConfigurationIntoDesiredValues(t *testing.T) {
	p := newPlant(t)
	eventlooptest.Run(t, p.Loop)
	p.set(t, "file", map[string]string{"a": `{"mtu":9000}`, "x": `{"mtu":100}`})
	if n := len(p.committer.Changes()); n != 0 {
		t.Errorf("%d changes before the start-up resync", n)
	}
	p.do(t, eventloop.Resynchronize{Kind: eventloop.Full, Reason: "start"})
	p.expect(t, "map[]", "map[a:{9000 } x:{100 }]")

	rec := p.do(t, &connect{put: map[string]port{"a": {1500, "ours"}}})
	p.expect(t, "map[a:{9000 ours}]", "map[x:{100 }]")
	if rec.External != 1 || len(rec.Drops) != 0 {
		t.Errorf("record: %+v", rec)
	}
	p.set(t, "later", map[string]string{"a": `{"note":null}`, "x": `{"note":"both"}`}) // by name after "file"
	p.expect(t, "map[a:{9000 }]", "map[x:{100 both}]")
	p.do(t, eventloop.Resynchronize{Kind: eventloop.Upstream, Reason: "test"})
	p.expect(t, "map[a:{9000 }]", "map[x:{100 both}]")
	p.set(t, "file", nil)
	p.expect(t, "map[a:{1500 }]", "map[]") // x has no mtu left, and is dropped
	p.set(t, "later", map[string]string{})
	p.expect(t, "map[a:{1500 ours}]", "map[]")
}

func TestStep8AKeyMovesBetweenHandlersAndExternalConfiguration(t *testing.T) {
	p := newPlant(t)
	eventlooptest.Ready(t, p.Loop)
	p.set(t, "file", map[string]string{"a": `{"mtu":100}`})
	p.do(t, &connect{put: map[string]port{"a": {MTU: 1500}}})
	p.expect(t, "map[a:{100 }]", "map[]")
	changes := p.committer.Changes()
	if ext := changes[len(changes)-1].External; len(ext) != 1 || ext[0].Value != nil {
		t.Errorf("the key is not given up: %v", ext)
	}
	p.do(t, &connect{delete: []string{"a"}})
	p.expect(t, "map[]", "map[a:{100 }]")
	if _, err := p.Do(t.Context(), &connect{put: map[string]port{"a": {MTU: 1500}}, fail: errBoom}); !errors.Is(err,
		errBoom) {
		t.Error(err)
	}
	p.expect(t, "map[]", "map[a:{100 }]")
	p.committer.After(func(_ context.Context, c eventloop.Change) error {
		if c.Atomic {
			return errBoom
		}
		return nil
	})
	if _, err := p.Do(t.Context(), &connect{put: map[string]port{"a": {MTU: 1500}}}); !errors.Is(err, errBoom) {
		t.Error(err)
	}
	p.expect(t, "map[]", "map[a:{100 }]")
	p.do(t, eventloop.Resynchronize{Kind: eventloop.Downstream, Reason: "test"})
	p.expect(t, "map[]", "map[a:{100 }]")
	p.committer.After(nil)
	p.do(t, &connect{}) // nothing
	p.OnResync("late", func(_ context.Context, txn *eventloop.Txn) error {
		txn.Put("a", port{MTU: 1500})
		txn.Delete("b") // is not there
		return nil
	})
	p.do(t, eventloop.Resynchronize{Kind: eventloop.Upstream, Reason: "test"})
	changes = p.committer.Changes()
	last := changes[len(changes)-1]
	if !slices.Equal(last.External, []eventloop.Setting{{Key: "a"}}) ||
		!slices.Equal(last.Set, []eventloop.Setting{{Key: "a", Value: port{MTU: 100}}}) {
		t.Errorf("resync: %+v", last)
	}
}

func TestStep8DropsAnInvalidPatch(t *testing.T) {
	p := newPlant(t)
	eventlooptest.Ready(t, p.Loop)
	p.set(t, "bad", map[string]string{
		"a": `{"mtu":1}`,
		"b": `{"mtu":"wide"}`,
		"c": `{"note":"panic"}`,
		"d": `null`,
		"x": `{"mtu":2}`,
	})
	p.set(t, "good", map[string]string{"a": `{"note":"kept"}`})
	rec := p.do(t, &connect{
		put: map[string]port{"a": {MTU: 1500}, "b": {MTU: 1500}, "c": {MTU: 1500}, "d": {MTU: 1500}},
	})
	p.expect(t, "map[a:{1500 kept} b:{1500 } c:{1500 } d:{1500 }]", "map[]")
	reasons := map[string]string{
		"a": "invalid: mtu 1 is less than 68", "b": "decode: ", "c": "panic: codec",
		"d": "null would delete the object",
	}
	if len(rec.Drops) != len(reasons) {
		t.Errorf("dropped: %+v", rec.Drops)
	}
	for _, d := range rec.Drops {
		if d.Source != "bad" || reasons[d.Key] == "" || !strings.HasPrefix(d.Reason, reasons[d.Key]) {
			t.Errorf("dropped: %+v", d)
		}
	}
}

func TestStatsHaveInvalidExternalValuesUntilTheyAreReplacedOrValid(t *testing.T) {
	p := newPlant(t)
	eventlooptest.Ready(t, p.Loop)
	want := func(when string, keys ...string) {
		t.Helper()
		var got []string
		for _, d := range p.Stats().Drops {
			got = append(got, d.Key)
		}
		if !slices.Equal(got, keys) {
			t.Errorf("%s: %q are left out, want %q", when, got, keys)
		}
	}
	p.set(t, "file", map[string]string{"x": `{"mtu":1}`, "a": `{"mtu":"wide"}`})
	want("a source with two wrong values", "a", "x")
	p.do(t, eventloop.Resynchronize{Kind: eventloop.Full, Reason: "test"})
	want("after a resync", "a", "x")
	p.do(t, &connect{put: map[string]port{"b": {MTU: 1500}}})
	want("after an event of other keys", "a", "x")
	p.do(t, &connect{put: map[string]port{"x": {MTU: 1500}}})
	want("after an event of a key", "a", "x")
	p.set(t, "file", map[string]string{"x": `{"mtu":1}`, "a": `{"mtu":1400}`})
	want("one of them replaced", "x")
	p.set(t, "file", nil)
	want("the source is gone")
}

func TestStep8ExternalConfigurationIsValidated(t *testing.T) {
	p := newPlant(t)
	eventlooptest.Ready(t, p.Loop)
	for _, bad := range []string{``, `{`, `{} {}`} {
		_, err := p.SetExternal(t.Context(), "file", map[string][]byte{"a": []byte(bad)})
		if !errors.Is(err, eventloop.ErrInvalid) || !strings.Contains(err.Error(), `value of "a"`) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := newWorld(t).SetExternal(t.Context(), "file", nil); err == nil {
		t.Error("no error without a codec")
	}
}

// A plan of external configuration is not the configuration.
func TestAPlanOfExternalConfigurationDoesNotChangeIt(t *testing.T) {
	p := newPlant(t)
	eventlooptest.Ready(t, p.Loop)
	p.set(t, "file", map[string]string{"a": `{"mtu":100}`, "x": `{"mtu":200}`})
	for _, values := range []map[string][]byte{
		{"a": []byte(`{"mtu":900}`)}, {"new": []byte(`{"mtu":1}`)}, {"a": []byte(`{"mtu":"wide"}`)}, nil,
	} {
		for _, source := range []string{"file", "another"} {
			if _, err := p.PlanExternal(t.Context(), source, values); err != nil {
				t.Error(err)
			}
		}
	}
	if drops := p.Stats().Drops; len(drops) > 0 {
		t.Errorf("values of a plan are dropped: %v", drops)
	}
	p.do(t, &connect{put: map[string]port{"a": {MTU: 1500}}})
	p.expect(t, "map[a:{100 }]", "map[x:{200 }]")
	p.do(t, eventloop.Resynchronize{Kind: eventloop.Full, Reason: "test"})
	p.expect(t, "map[a:{100 }]", "map[x:{200 }]")
}

// strictCodec refuses all values once it is told to.
type strictCodec struct {
	portCodec

	isStrict *bool
}

func (c strictCodec) Validate(key string, value any) error {
	if *c.isStrict {
		return errBoom
	}
	return c.portCodec.Validate(key, value)
}

// A resync commits the whole external configuration. A value that it leaves out is not there any more, and needs no
// delete.
func TestAResyncForgetsExternalValuesThatItLeavesOut(t *testing.T) {
	committer := &eventlooptest.Committer{}
	isStrict := false
	l := eventloop.New(eventloop.Config{Committer: committer, External: strictCodec{isStrict: &isStrict}})
	stop := eventlooptest.Ready(t, l)
	defer stop()
	set := func(values map[string][]byte) {
		if _, err := l.SetExternal(t.Context(), "file", values); err != nil {
			t.Error(err)
		}
	}
	set(map[string][]byte{"x": []byte(`{"mtu":200}`)})
	isStrict = true
	if _, err := l.Do(t.Context(), eventloop.Resynchronize{Kind: eventloop.Full, Reason: "test"}); err != nil {
		t.Error(err)
	}
	set(nil)
	changes := committer.Changes()
	if last := changes[len(changes)-1]; len(last.External) > 0 {
		t.Errorf("the last change is %+v", last)
	}
}
