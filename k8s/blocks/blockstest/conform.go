package blockstest

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// Backend is where a cluster keeps its blocks.
type Backend interface {
	Get(ctx context.Context, name string) (*v1.IPBlock, error)
	List(ctx context.Context, p blocks.PoolCIDR, fresh bool) ([]v1.IPBlock, error)
	Create(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error)
	Update(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error)
	Delete(ctx context.Context, b *v1.IPBlock) error
}

// object is a block of a node, of a pool or a network.
func object(name, cidr, pool, network string) *v1.IPBlock {
	return &v1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.IPBlockSpec{CIDR: v1.CIDR(cidr), Pool: pool, Network: v1.NetworkName(network), Node: "n1"},
	}
}

// Conform shows that an empty backend is what keepers need: one of those wins who write the same.
func Conform(t *testing.T, b Backend) {
	t.Run("writes need the version that was read", func(t *testing.T) { conformWrites(t, b) })
	t.Run("one of many wins", func(t *testing.T) { conformRaces(t, b) })
	t.Run("a list is of one pool", func(t *testing.T) { conformLists(t, b) })
}

func conformWrites(t *testing.T, s Backend) {
	ctx := t.Context()
	made, err := s.Create(ctx, object("10.1.0.0-26", "10.1.0.0/26", "pods", ""))
	if err != nil || made.UID == "" || made.ResourceVersion == "" {
		t.Fatalf("created %+v, error %v", made, err)
	}
	if _, err := s.Create(ctx, made.DeepCopy()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: error %v", err)
	}
	old := made.DeepCopy()
	made.Spec.Offered = []v1.IP{"10.1.0.9"}
	written, err := s.Update(ctx, made)
	if err != nil || written.ResourceVersion == old.ResourceVersion || len(written.Spec.Offered) != 1 ||
		written.UID != old.UID {
		t.Fatalf("written %+v, error %v", written, err)
	}
	if _, err := s.Update(ctx, old); !apierrors.IsConflict(err) {
		t.Errorf("an old version was written: error %v", err)
	}
	if err := s.Delete(ctx, old); !apierrors.IsConflict(err) {
		t.Errorf("an old version was deleted: error %v", err)
	}
	other := written.DeepCopy()
	other.UID = "another"
	if err := s.Delete(ctx, other); !apierrors.IsConflict(err) {
		t.Errorf("another incarnation was deleted: error %v", err)
	}
	if err := s.Delete(ctx, written); err != nil {
		t.Error(err)
	}
	_, read := s.Get(ctx, written.Name)
	_, update := s.Update(ctx, written)
	for what, err := range map[string]error{"get": read, "update": update, "delete": s.Delete(ctx, written)} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s of a deleted block: error %v", what, err)
		}
	}
	again, err := s.Create(ctx, object("10.1.0.0-26", "10.1.0.0/26", "pods", ""))
	if err != nil || again.UID == written.UID {
		t.Errorf("made again with UID %s, error %v: it was %s before", again.UID, err, written.UID)
	}
	again.Spec.Node = "changed"
	if there, err := s.Get(ctx, again.Name); err != nil || there.Spec.Node != "n1" {
		t.Errorf("what was answered is what is kept: %+v, error %v", there, err)
	}
}

func conformRaces(t *testing.T, s Backend) {
	win := func(attempt func() error) int64 {
		var won atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				switch err := attempt(); {
				case err == nil:
					won.Add(1)
				case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err):
					t.Error(err)
				}
			})
		}
		all.Wait()
		return won.Load()
	}
	claim := object("10.1.0.64-26", "10.1.0.64/26", "pods", "")
	if n := win(func() error { _, err := s.Create(t.Context(), claim.DeepCopy()); return err }); n != 1 {
		t.Errorf("%d of 16 created it", n)
	}
	b, err := s.Get(t.Context(), claim.Name)
	if err != nil {
		t.Fatal(err)
	}
	if n := win(func() error { _, err := s.Update(t.Context(), b.DeepCopy()); return err }); n != 1 {
		t.Errorf("%d of 16 wrote the same version", n)
	}
	if b, err = s.Get(t.Context(), claim.Name); err != nil {
		t.Fatal(err)
	}
	if n := win(func() error { return s.Delete(t.Context(), b.DeepCopy()) }); n != 1 {
		t.Errorf("%d of 16 deleted it", n)
	}
}

func conformLists(t *testing.T, s Backend) {
	for _, b := range []*v1.IPBlock{
		object("10.2.0.0-26", "10.2.0.0/26", "listed", ""), object("blue.10.2.0.0-26", "10.2.0.0/26", "", "blue"),
		object("10.2.0.64-26", "10.2.0.64/26", "listed", ""),
	} {
		if _, err := s.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	for name, p := range map[string]blocks.PoolCIDR{
		"10.2.0.0-26 10.2.0.64-26": {Name: "listed"},
		"blue.10.2.0.0-26":         {Network: "blue"},
		"":                         {Name: "none"},
	} {
		for _, fresh := range []bool{true, false} {
			list, err := s.List(t.Context(), p, fresh)
			if got := names(list); err != nil || got != name {
				t.Errorf("%s: listed %q, error %v, want %q", p, got, err, name)
			}
		}
	}
}

func names(list []v1.IPBlock) string {
	var all []string
	for _, b := range list {
		all = append(all, b.Name)
	}
	return strings.Join(all, " ")
}

// Giver allocates addresses of blocks on one node.
type Giver struct {
	Local interface {
		Add(b netaddr.Block) error
		Remove(b netaddr.Block) bool
		Usage(b netaddr.Block) blocks.Usage
		Withhold(b netaddr.Block, wanted netip.Addr, namespace string) netip.Addr
		Return(b netaddr.Block, address netip.Addr)
	}
	Lease   func() netip.Addr  // for a pod; not valid: none is free
	Release func(a netip.Addr) // of a pod
	Wait    func(d time.Duration)
}

// ConformGiver tests an implementation without allocated addresses, with a block of the pool pods.
func ConformGiver(t *testing.T, g Giver) {
	b := netaddr.Block{Prefix: netip.MustParsePrefix("10.1.0.64/29")}
	counts := func(when string, held, cooling, free int) {
		t.Helper()
		if u := g.Local.Usage(b); u != (blocks.Usage{Held: held, Cooling: cooling, Free: free}) {
			t.Errorf("%s: %+v, want %d held, %d cooling, %d free", when, u, held, cooling, free)
		}
	}
	counts("before it comes", 0, 0, 0)
	if !g.Local.Remove(b) || g.Local.Withhold(b, netip.Addr{}, "").IsValid() || g.Lease().IsValid() {
		t.Error("there are addresses before there is a block")
	}
	b.Withheld = []netip.Addr{netip.MustParseAddr("10.1.0.70")}
	if err := g.Local.Add(b); err != nil {
		t.Fatal(err)
	}
	counts("with one lent", 0, 0, 7)
	pod := g.Lease()
	lent := g.Local.Withhold(b, netip.Addr{}, "")
	counts("with a pod and two lent", 1, 0, 5)
	for range 5 {
		if a := g.Lease(); a == lent || a == b.Withheld[0] || !b.Prefix.Contains(a) {
			t.Errorf("a pod has %s", a)
		} else {
			defer g.Release(a)
		}
	}
	if a := g.Lease(); a.IsValid() {
		t.Errorf("a pod has %s, which is lent, or another's", a)
	}
	g.Local.Return(b, lent)
	g.Wait(time.Minute)
	if a := g.Lease(); a != lent {
		t.Errorf("a pod has %s, want %s, which was lent", a, lent)
	}
	g.Release(pod)
	counts("when one pod has ended", 6, 1, 0)
	if g.Local.Remove(b) {
		t.Error("it goes although pods have its addresses")
	}
	g.Wait(time.Minute)
	counts("when it is to go", 6, 0, 0)
	if g.Lease().IsValid() {
		t.Error("an address of a block that is to go")
	}
	if err := g.Local.Add(b); err != nil {
		t.Fatal(err)
	}
	counts("when it stays after all", 6, 0, 1)
}
