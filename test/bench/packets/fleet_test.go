package packets

import (
	"slices"
	"testing"
	"time"
)

func TestBurstArrivesWithItsLastPacket(t *testing.T) {
	began := time.Now()
	d := way{
		flights: []flight{
			{paceBurst, began}, {2 * paceBurst, began.Add(time.Microsecond)},
			{3 * paceBurst, began.Add(2 * time.Microsecond)},
		},
	}
	var m paced
	d.land(paceBurst-1, began.Add(5*time.Microsecond), &m)
	if len(m.all) != 0 {
		t.Fatalf("without the last packet of the burst: %v", m.all)
	}
	d.land(paceBurst+1, began.Add(10*time.Microsecond), &m)
	d.land(paceBurst, began.Add(20*time.Microsecond), &m)
	if want := []time.Duration{10 * time.Microsecond, 9 * time.Microsecond, 18 * time.Microsecond}; !slices.Equal(m.all,
		want) || len(d.flights) != 0 {
		t.Errorf("delays %v, want %v; %d bursts in flight", m.all, want, len(d.flights))
	}
}

func TestShareOfDelays(t *testing.T) {
	if d := (paced{}).share(50); d != 0 {
		t.Errorf("median without bursts: %s", d)
	}
	m := paced{all: []time.Duration{1, 2, 3, 4, 100}}
	if m.share(50) != 3 || m.share(99) != 4 || m.share(100) != 100 {
		t.Errorf("p50 %d, p99 %d, p100 %d", m.share(50), m.share(99), m.share(100))
	}
}

func TestFleetMeasuresAllItsLinks(t *testing.T) {
	for name, lose := range map[string]int{"nothing is lost": 0, "every tenth is lost": 10} {
		t.Run(name, func(t *testing.T) {
			f := &fleet{}
			for range 2 {
				f.links = append(f.links, crossover(t, lose))
				f.wires = append(f.wires, memifPair{ids: [2]uint32{0, 1}})
			}
			if err := f.fill(64); err != nil {
				t.Fatal(err)
			}
			if m := f.saturate(64, 50*time.Millisecond); m.sent < 4*burst || m.took < 50*time.Millisecond {
				t.Errorf("saturated with %+v", m)
			}
			m := f.pace(64, 20000, time.Second)
			if m.sent < 1000 || (m.lost() != 0) != (lose != 0) || m.share(50) <= 0 {
				t.Errorf("lost %d of %d, half took %s", m.lost(), m.sent, m.share(50))
			}
		})
	}
}
