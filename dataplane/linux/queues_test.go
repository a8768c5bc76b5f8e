package linux

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// queued is the pair with queues.
func (l *lab) queued(rx, tx int) object {
	return l.veth(func(v *wire.Veth) { v.RxQueues, v.TxQueues = rx, tx })
}

// mustHaveQueues fails the test unless the kernel uses that many at the pod's end, and at the host's the other way round.
func (l *lab) mustHaveQueues(rx, tx int) {
	l.Helper()
	if r, w := netnstest.Queues(l.T, l.path, "eth1"); r != rx || w != tx {
		l.Errorf("the pod reads from %d and writes to %d queues, want %d and %d", r, w, rx, tx)
	}
	if r, w := netnstest.Queues(l.T, "", hostEnd); r != tx || w != rx {
		l.Errorf("the host reads from %d and writes to %d queues, want %d and %d", r, w, tx, rx)
	}
}

func TestAVethIsMadeWithItsQueuesAndAnewForOthers(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.namespace(), l.veth())
	l.mustHaveQueues(1, 1)
	for _, q := range []struct{ rx, tx int }{{2, 3}, {4, 0}, {1, 2}, {16, 16}, {0, 0}} {
		l.mustCommit(l.queued(q.rx, q.tx))
		l.mustHaveQueues(max(q.rx, 1), max(q.tx, 1))
		l.quiet()
	}
	l.mustCommit(object{l.veth().key, nil})
	if isThere(hostEnd) || l.isInPod("eth1") {
		t.Error("an end is left behind")
	}
}

func TestAVethWithOtherQueuesThanItShouldHaveIsMadeAnew(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.namespace(), l.queued(2, 2))
	must(t, netlink.LinkDel(mustFind(t, hostEnd)))
	fd, err := unix.Open(l.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	other := netlink.NewVeth(netlink.LinkAttrs{Name: hostEnd, HardwareAddr: mac2[:], TxQLen: 1000, NumRxQueues: 3, NumTxQueues: 3})
	other.PeerName, other.PeerNamespace = "eth1", netlink.NsFd(fd)
	must(t, netlink.LinkAdd(other))
	must(t, netlink.LinkSetAlias(mustFind(t, hostEnd), alias))
	l.inside(func() { must(t, netlink.LinkSetAlias(mustFind(t, "eth1"), alias)) })
	if _, err := l.s.Resync(t.Context(), kvscheduler.ResyncOpt{}); err != nil {
		t.Errorf("repair: %v", err)
	}
	l.mustHaveQueues(2, 2)
	l.mustBe(l.queued(2, 2).value.(wire.Veth))
}
