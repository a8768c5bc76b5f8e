package connectivity

import (
	"testing"

	"github.com/weftnet/weft/internal/probe"
)

// FuzzOutcomes reads any output of a probe pod, in two parts: each probe has at most one outcome, and the memory is
// bounded.
func FuzzOutcomes(f *testing.F) {
	for _, seed := range []string{
		"{\"id\":0,\"took\":310000}\n{\"id\":1,\"error\":\"no reply within 3s\"}\n{\"id\":2,\"size\":1450}\n",
		"{\"id\":1}\n{\"id\":1}\n{\"id\":-1}\n{\"id\":3}\n",
		"panic: x\n\ngoroutine 1\n{\"id\":0}", "{\"id\":1e0}\n{\"ID\":2}\n", "\x00\n\n[]\n",
	} {
		f.Add([]byte(seed), len(seed)/2)
	}
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		const probes = 3
		reported := map[int]int{}
		o := newOutcomes(probes, func(o probe.Outcome) { reported[o.ID]++ })
		at = min(max(at, 0), len(text))
		for _, part := range [][]byte{text[:at], text[at:]} {
			if n, err := o.Write(part); n != len(part) || err != nil {
				t.Errorf("wrote %d of %d bytes: %v", n, len(part), err)
			}
		}
		for id, times := range reported {
			if id < 0 || id >= probes || times != 1 {
				t.Errorf("outcome %d is reported %d times of %q", id, times, text)
			}
		}
		if complete := o.complete() == nil; complete != (len(reported) == probes) || len(o.begun) > maxOutcome {
			t.Errorf("complete %v with %d outcomes, %d bytes are kept", complete, len(reported), len(o.begun))
		}
	})
}

// FuzzInterfaces reads any list of interfaces: names that a terminal shows, and a bounded number of addresses to which
// probes may go.
func FuzzInterfaces(f *testing.F) {
	for _, seed := range []string{
		`[{"name":"eth0","mtu":1450,"addresses":["10.1.0.2","fd00::2"]},{"name":"memif0","memif":true,"addresses":["198.19.0.2"]}]`,
		`[{"name":"a\nb"}]`,
		`[{"name":"..","addresses":null}]`, `[{"name":"e","addresses":["::","224.0.0.1","::ffff:127.0.0.1"]}]`,
		`{}`, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseInterfaces(text)
		if err != nil && all != nil {
			t.Errorf("interfaces %v with error %v", all, err)
		}
		for _, i := range all {
			for _, r := range i.Name {
				if r <= ' ' || r >= 127 {
					t.Errorf("name %q", i.Name)
				}
			}
			if i.Name == "" || len(i.Addresses) > maxAddresses {
				t.Errorf("interface %+v", i)
			}
			for _, a := range i.Addresses {
				if a = a.Unmap(); a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() || a.IsLinkLocalUnicast() {
					t.Errorf("probes go to %s", a)
				}
			}
		}
	})
}
