package memif_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/peers"
	"github.com/weftnet/weft/test/ping"
	"github.com/weftnet/weft/test/stopwatch"
)

// Environment variables of the long form.
const (
	killsVariable = "WEFT_MEMIF_KILLS" // number of kills
	// programVariable is the path of a further program. It is a client of the memif at $MEMIF_SOCKET with $MEMIF_SECRET
	// and ID 1, and answers ARP and pings with the MAC in its argument.
	programVariable = "WEFT_MEMIF_PROGRAM"
)

// soak says how programs with memifs are killed.
type soak struct {
	kills            int // of all kinds together
	youngest, oldest time.Duration
}

// soakOf returns the long form if WEFT_MEMIF_KILLS is set, else a short one. Its ages are above the deadlines of
// control messages.
func soakOf(t *testing.T, kinds int) soak {
	t.Helper()
	text := os.Getenv(killsVariable)
	if text == "" {
		const each = 2 // one of a young program
		return soak{kills: each * kinds, youngest: 3 * time.Second, oldest: 4 * time.Second}
	}
	kills, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", killsVariable, err)
	}
	return soak{kills: kills, oldest: time.Minute}
}

// ages returns how old the programs of one kind become, of kinds. The first of each four is killed while it starts or
// connects.
func (s soak) ages(random *rand.Rand, kind, kinds int) (ages []time.Duration) {
	const (
		startup = 500 * time.Millisecond
		share   = 4
	)
	for n := kind; n < s.kills; n += kinds {
		age := s.youngest + time.Duration(random.Int64N(int64(s.oldest-s.youngest)))
		if len(ages)%share == 0 {
			age = time.Duration(random.Int64N(int64(startup)))
		}
		ages = append(ages, age)
	}
	return ages
}

// successor is the time in which the program after a killed one must be connected and forward packets. DPDK needs most
// of it to start.
const successor = 30 * time.Second

// victim is a program that is killed again and again.
type victim struct {
	start func(l *lab) *program
	// from is a pod that reaches the program at an address, by a link.
	from *node.Pod
	link string
	to   netip.Addr
}

// killAtAges kills a program at each age, and expects each time that the next one forwards packets.
func (l *lab) killAtAges(v victim, ages []time.Duration) {
	l.Helper()
	var took []time.Duration
	for _, age := range ages {
		began := time.Now()
		p := v.start(l)
		if age > l.reachIn(v, age) {
			<-time.After(age - time.Since(began))
		}
		p.end()
		p = v.start(l)
		took = append(took, l.connects(v, p))
		p.end()
	}
	slices.Sort(took)
	l.Logf("%d killed at ages up to %s; successors forwarded packets after %s (median) to %s", len(ages),
		slices.Max(ages),
		took[len(took)/2], took[len(took)-1])
}

// reachIn sends packets to the program for at most a time, and returns how long it did: a connection that is in use is
// killed, too.
func (l *lab) reachIn(v victim, most time.Duration) time.Duration {
	return stopwatch.Time(func() { _ = l.reaches(v, most) })
}

// connects expects that the program forwards packets, and returns after which time.
func (l *lab) connects(v victim, p *program) time.Duration {
	l.Helper()
	return stopwatch.Time(func() {
		if err := l.reaches(v, successor); err != nil {
			l.Fatalf("the successor is not reachable: %v\n%s", err, p.out)
		}
	})
}

func (l *lab) reaches(v victim, most time.Duration) error {
	p, err := ping.OpenOn(v.from.Netns, v.link, v.to)
	if err != nil {
		return err
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(l.Context(), most)
	defer cancel()
	_, err = p.Reach(ctx, v.to)
	return err
}

// victims are the kinds of programs and connections.
var victims = map[string]func(l *lab, name string) victim{
	"client of the dataplane":           ofDataplane("icmpresponder"),
	"tap of the kernel":                 ofDataplane("memiftap"),
	"testpmd":                           testpmdOfDataplane,
	"server of a direct memif":          ofDirectMemif("server", "client"),
	"client of a direct memif":          ofDirectMemif("client", "server"),
	"testpmd, client of a direct memif": testpmdOfDirectMemif,
	"program, client of the dataplane":  programOfDataplane,
	"program, client of a direct memif": programOfDirectMemif,
}

// ofDataplane kills a program that is a client of the dataplane.
func ofDataplane(example string) func(l *lab, name string) victim {
	return func(l *lab, name string) victim {
		d, containers := l.admit(name, "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
		m1 := l.add(d)[1]
		start := func(l *lab) *program { return l.start(d, containers[0], example) }
		return victim{start: start, from: l.neighbour(name + "-from"), to: m1.Bare()[0]}
	}
}

func testpmdOfDataplane(l *lab, name string) victim {
	d, containers := l.admit(name, "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
	m1 := l.add(d)[1]
	start := func(l *lab) *program { return l.startTestpmd(d, containers[0], "$MEMIF_SOCKET", m1.Mac) }
	return victim{start: start, from: l.neighbour(name + "-from"), to: m1.Bare()[0]}
}

// ofDirectMemif kills one end of a direct memif; the other one stays.
func ofDirectMemif(killed, other string) func(l *lab, name string) victim {
	return func(l *lab, name string) victim {
		d, c, _, stays := l.directPair(name, killed, other)
		start := func(l *lab) *program { return l.start(d, c, "memiftap") }
		return victim{start: start, from: stays, link: "d0", to: netip.MustParseAddr("10.9.0.1")}
	}
}

func testpmdOfDirectMemif(l *lab, name string) victim {
	d, c, mac, stays := l.directPair(name, "client", "server")
	start := func(l *lab) *program { return l.startTestpmd(d, c, "$(dirname $MEMIF_SOCKET)/d1.sock", mac) }
	return victim{start: start, from: stays, link: "d0", to: netip.MustParseAddr("10.9.0.1")}
}

func programOfDataplane(l *lab, name string) victim {
	d, containers := l.admit(name, "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
	m1 := l.add(d)[1]
	start := func(l *lab) *program { return l.start(d, containers[0], os.Getenv(programVariable), m1.Mac) }
	return victim{start: start, from: l.neighbour(name + "-from"), to: m1.Bare()[0]}
}

func programOfDirectMemif(l *lab, name string) victim {
	d, c, mac, stays := l.directPair(name, "client", "server")
	start := func(l *lab) *program {
		return l.start(d, c, "/bin/sh", "-c",
			`MEMIF_SOCKET="$(dirname "$MEMIF_SOCKET")/d1.sock" exec "`+os.Getenv(programVariable)+`" `+mac)
	}
	return victim{start: start, from: stays, link: "d0", to: netip.MustParseAddr("10.9.0.1")}
}

// directPair makes two pods on a direct network of their own, and returns the first one with its MAC. The program of
// the second one runs.
func (l *lab) directPair(name, role, other string) (*node.Pod, kubelettest.Container, string, *node.Pod) {
	l.Helper()
	custom := "d0/memif/" + name
	d, first := l.admit(name, custom, fmt.Sprintf(`{"d0":{"role":%q,"ips":["10.9.0.1/24"]}}`, role),
		kubelettest.Container{Name: "vnf", Limit: 1})
	mac := l.add(d)[1].Mac
	stays, second := l.admit(name+"-stays", custom, fmt.Sprintf(`{"d0":{"role":%q,"ips":["10.9.0.2/24"]}}`, other),
		kubelettest.Container{Name: "vnf", Limit: 1})
	l.add(stays)
	l.start(stays, second[0], "memiftap")
	return d, first[0], mac, stays
}

// startTestpmd runs DPDK's testpmd, which answers pings at any address.
func (l *lab) startTestpmd(d *node.Pod, c kubelettest.Container, socket, mac string) *program {
	l.Helper()
	found, err := peers.Testpmd()
	l.try(err)
	for _, variable := range found.Environment {
		key, value, _ := strings.Cut(variable, "=")
		c = with(c, key, value)
	}
	command := append([]string{found.Path}, found.Arguments...)
	command = append(command, "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--file-prefix", "weft",
		"--lcores", "0@(0-1),1@(0-1)",
		"--vdev", "net_memif0,role=client,socket-abstract=no,id=1,secret=$MEMIF_SECRET,socket=/run/link,mac="+mac,
		"--", "--stats-period", "60", "--total-num-mbufs=20000", "--mbcache=256", "--auto-start", "--no-lsc-interrupt",
		"--nb-cores=1", "--no-flush-rx",
		"--forward-mode=icmpecho")
	// DPDK refuses a socket in a directory that it cannot write to.
	return l.start(d, c, "/bin/sh", "-c", `ln -s "`+socket+`" /run/link; exec "`+strings.Join(command, `" "`)+`"`)
}

// A program with a memif crashes at any age and in any role. The next one connects and forwards packets. The long form
// has WEFT_MEMIF_KILLS kills at ages up to a minute.
func TestSuccessorOfAKilledProgramForwardsPackets(t *testing.T) {
	kinds := slices.Sorted(func(yield func(string) bool) {
		for kind := range victims {
			isMissing := strings.HasPrefix(kind, "testpmd") && !hasTestpmd(t) ||
				strings.HasPrefix(kind, "program") && os.Getenv(programVariable) == ""
			if !isMissing && !yield(kind) {
				return
			}
		}
	})
	var direct []node.Network
	for n := range kinds {
		direct = append(direct, node.Network{Name: soakPod(n), Type: "L2", Direct: true})
	}
	l := newLab(t, node.Options{Networks: direct, Embedded: true, Memifs: 2 * len(kinds)})
	s := soakOf(t, len(kinds))
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d kills, seed %d", s.kills, seed)
	var all []victim
	for n, kind := range kinds {
		all = append(all, victims[kind](l, soakPod(n)))
	}
	for n, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			v := all[n]
			here := &lab{T: t, Node: l.Node, runtime: l.runtime}
			here.killAtAges(v, s.ages(rand.New(rand.NewPCG(seed, uint64(n))), n, len(kinds)))
		})
	}
}

// soakPod is the name of the pod of a kind, and of its direct network.
func soakPod(kind int) string { return fmt.Sprintf("s%d", kind) }

// hasTestpmd reports whether testpmd is there. It fails if it is required.
func hasTestpmd(t *testing.T) bool {
	t.Helper()
	_, err := peers.Testpmd()
	if err != nil && slices.Contains(strings.Split(os.Getenv("WEFT_REQUIRE"), ","), "dpdk") {
		t.Fatalf("required (WEFT_REQUIRE) and not available: %v", err)
	}
	return err == nil
}
