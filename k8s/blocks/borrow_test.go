package blocks_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

func borrowable(prefix string, bits int) blocks.PoolCIDR {
	p := pool(prefix, bits)
	p.Borrowing = true
	return p
}

func TestANodeWithoutABlockBorrowsAddresses(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	lender := l.node("n1")
	borrower := l.node("n2")
	l.step(lender)
	l.step(borrower)
	a := l.lease(borrower, 1)[0]
	if !netip.MustParsePrefix("10.1.0.0/26").Contains(a) {
		t.Errorf("borrowed %s, which is not of the lender's block", a)
	}
	l.now = l.now.Add(time.Minute)
	l.step(borrower)
	l.lease(borrower, 2) // another one is there ahead of need, and what is used is asked for again
	l.sound(lender, borrower)
	for range 60 {
		if x := lender.local.Lease(); x == a {
			t.Fatalf("the lender allocates %s itself", x)
		}
	}
}

// An API server refuses such a text by a rule of the definition, which an older one lacks.
func TestABorrowerReadsTheOffersThatAreAddresses(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	lender := l.node("n1")
	borrower := l.node("n2")
	l.step(lender)
	b := l.store.All()[0].DeepCopy()
	b.Spec.Offered = []v1.IP{"x", "10.1.0.9"}
	if _, err := l.store.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	l.step(borrower)
	lent := l.store.All()[0].Spec.Borrowed
	if len(lent) != 1 || lent[0].Address != "10.1.0.9" {
		t.Errorf("borrowed %v, want 10.1.0.9", lent)
	}
}

func TestABorrowedAddressIsReturnedAfterTheGrace(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	lender := l.node("n1")
	borrower := l.node("n2")
	l.step(lender)
	l.step(borrower)
	a := l.lease(borrower, 1)[0]
	borrower.local.Release(a)
	l.step(borrower)
	if lent := l.store.All()[0].Spec.Borrowed; len(lent) != 2 {
		t.Fatalf("lent %v while one rests, want two", lent)
	}
	l.now = l.now.Add(time.Minute)
	l.step(borrower)
	l.now = l.now.Add(l.marks.Grace)
	l.pools[0].Borrowing = false
	_ = borrower.Step(t.Context()) // finds no block
	l.step(lender)                 // sees the returned address
	l.step(lender)                 // takes the offers back
	if b := l.store.All()[0]; len(b.Spec.Borrowed) != 0 || len(b.Spec.Offered) != 0 {
		t.Errorf("lent %v, offered %v after the switch is off", b.Spec.Borrowed, b.Spec.Offered)
	}
	l.lease(lender, 64)
	l.sound(lender, borrower)
}

func TestStrictAffinityRefusesToBorrow(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	lender := l.node("n1")
	other := l.node("n2")
	l.step(lender)
	if err := other.Step(t.Context()); !errors.As(err, &blocks.ErrNoBlocks{}) {
		t.Errorf("error %v, want that no block is left", err)
	}
	if b := l.store.All()[0]; len(b.Spec.Offered) != 0 {
		t.Errorf("offered %v", b.Spec.Offered)
	}
	if a := other.local.Lease(); a.IsValid() {
		t.Errorf("%s was leased", a)
	}
	l.sound(lender, other)
}

func TestAnOfferStaysWithheldWhenTheAnswerIsLost(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	lender := l.node("n1")
	borrower := l.node("n2")
	l.fail("update", blockstest.Lost)
	if err := lender.Step(t.Context()); err == nil {
		t.Error("no error for an offer without an answer")
	}
	l.store.Fault = nil
	l.step(borrower)
	l.lease(borrower, 1)
	l.step(lender)
	l.lease(lender, 56)
	if a := lender.local.Lease(); a.IsValid() {
		t.Errorf("%s is given out although it is on offer", a)
	}
	l.sound(lender, borrower)
}

func TestLoansOfAnEarlierRunAreFound(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	lender := l.node("n1")
	borrower := l.node("n2")
	l.step(lender)
	l.step(borrower)
	borrower.local = &blockstest.Node{Name: "n2", Judge: l.judge, Now: l.clock}
	l.restart(borrower)
	l.step(borrower)
	l.lease(borrower, 2)
	l.sound(lender, borrower)
}

func TestLoansAreKnownOverARestart(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	lender := l.node("n1")
	borrower := l.node("n2")
	l.step(lender)
	l.step(borrower)
	known := borrower.kept
	borrower.local = &blockstest.Node{Name: "n2", Judge: l.judge, Now: l.clock}
	borrower.away = true
	l.restart(borrower, known...)
	l.lease(borrower, 2)
	l.sound(lender, borrower)
}

func TestAnOfferIsStoredBeforeItIsWritten(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	lender := l.node("n1")
	borrower := l.node("n2")
	l.fail("update", blockstest.Lost)
	_ = lender.Step(t.Context()) // ends before its answer, and the node crashes
	l.store.Fault = nil
	l.step(borrower)
	lender.local.Crash()
	lender.away = true
	l.restart(lender, lender.kept...)
	l.lease(lender, 56)
	if a := lender.local.Lease(); a.IsValid() {
		t.Errorf("%s is given out although it is lent", a)
	}
	l.sound(lender, borrower)
}

// A borrower that restarts without an API server uses what it has kept, so the lender must not have the address back
// before.
func TestALoanIsNotReturnedBeforeThatIsStored(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	lender := l.node("n1")
	borrower := l.node("n2")
	l.step(lender)
	l.step(borrower)
	l.now = l.now.Add(2 * l.marks.Grace)
	borrower.keepFails = true
	if err := borrower.Step(t.Context()); err == nil {
		t.Error("no error although nothing can be kept")
	}
	if lent := l.store.All()[0].Spec.Borrowed; len(lent) == 0 {
		t.Error("a loan is returned although the next run needs it")
	}
	borrower.local.Crash()
	borrower.keepFails = false
	borrower.away = true
	l.restart(borrower, borrower.kept...)
	l.lease(borrower, 1)
	l.step(lender)
	l.sound(lender, borrower)
}
