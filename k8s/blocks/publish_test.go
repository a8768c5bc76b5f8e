package blocks_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// statuses records the published statuses.
type statuses struct {
	blocks []v1.IPBlock
	there  v1.IPBlock // what the API server has; default: the first block
	writes []v1.IPBlockStatus
	tries  int

	mu    sync.Mutex
	fails bool
	pods  []v1.Allocation
}

func (s *statuses) set(fails bool, pods ...v1.Allocation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
	s.pods = pods
}

func (s *statuses) now() (fails bool, pods []v1.Allocation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fails, s.pods
}

func (s *statuses) Get(context.Context, string) (*v1.IPBlock, error) {
	if s.there.Name != "" {
		return s.there.DeepCopy(), nil
	}
	return s.blocks[0].DeepCopy(), nil
}

func (s *statuses) UpdateStatus(_ context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	s.tries++
	if fails, _ := s.now(); fails {
		return nil, errors.New("not now")
	}
	s.writes = append(s.writes, b.Status)
	return b, nil
}

func publisher(s *statuses) *blocks.Publisher {
	b := v1.IPBlock{Spec: v1.IPBlockSpec{CIDR: "10.1.0.0/26", Pool: "pods", Node: "n1"}}
	b.Name = "10.1.0.0-26"
	b.UID = "1"
	s.blocks = []v1.IPBlock{b}
	return &blocks.Publisher{
		Store: s, Node: "n1", Blocks: func() []v1.IPBlock { return s.blocks },
		Allocations: func(netaddr.Block) []v1.Allocation { _, pods := s.now(); return pods },
		Usage:       func(netaddr.Block) blocks.Usage { _, pods := s.now(); return blocks.Usage{Free: 60 - len(pods)} },
	}
}

func TestChangesAreWrittenAtMostOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &statuses{}
		p := publisher(s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		synctest.Wait()
		if len(s.writes) != 1 {
			t.Errorf("%d writes at first, want one with everything", len(s.writes))
		}
		var pods []v1.Allocation
		for i := range 10 {
			pods = append(pods, v1.Allocation{
				Address:    v1.IP("10.1.0." + string(rune('0'+i))),
				Attachment: "weft/c/eth0",
			})
		}
		s.set(false, pods...)
		<-time.After(10 * time.Second)
		synctest.Wait()
		if len(s.writes) != 2 || s.writes[1].Used != 10 || len(s.writes[1].Allocations) != 10 ||
			s.writes[1].Free != 50 {
			t.Errorf("%d writes in 10 s after ten changes, want one more with all", len(s.writes))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the publisher ended with %v", err)
		}
	})
}

func TestAFailedWriteIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &statuses{}
		pods := v1.Allocation{Address: "10.1.0.3", Attachment: "weft/c/eth0"}
		s.set(true, pods)
		p := publisher(s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		<-time.After(10 * time.Minute) // the API server is away
		synctest.Wait()
		if s.tries > 30 {
			t.Errorf("%d tries in ten minutes", s.tries)
		}
		s.set(false, pods)
		<-time.After(31 * time.Second) // the longest pause
		synctest.Wait()
		if len(s.writes) != 1 || s.writes[0].Used != 1 {
			t.Errorf("writes %+v, want one with what there is now", s.writes)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the publisher ended with %v", err)
		}
	})
}

func TestAnEmptyBlockOfAnEarlierRunIsPublished(t *testing.T) {
	s := &statuses{}
	p := publisher(s)
	s.blocks[0].Status = v1.IPBlockStatus{
		Used:        1,
		Allocations: []v1.Allocation{{Address: "10.1.0.9", Attachment: "weft/old/eth0"}},
	}
	if err := p.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.writes) != 1 || len(s.writes[0].Allocations) != 0 || s.writes[0].Used != 0 {
		t.Errorf("writes %+v, want one without addresses: what the node knows counts", s.writes)
	}
}

// Ten pods a second cause a few writes, and not one for each pod.
func TestAddressesThatChangeAllTheTimeAreWrittenOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &statuses{}
		p := publisher(s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		var pods []v1.Allocation
		for i := range 50 {
			<-time.After(100 * time.Millisecond)
			pods = append(pods, v1.Allocation{Address: v1.IP(fmt.Sprintf("10.1.0.%d", i)), Attachment: "weft/c/eth0"})
			s.set(false, pods...)
		}
		<-time.After(2 * time.Second)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the publisher ended with %v", err)
		}
		if n := len(s.writes); n > 8 || s.writes[n-1].Used != 50 {
			t.Errorf("%d writes in 7 s, and the last one has %d of 50 addresses", n, s.writes[n-1].Used)
		}
	})
}

func TestNoStatusOfAnotherNodesBlockIsWritten(t *testing.T) {
	for name, change := range map[string]func(s *statuses){
		"a block that lends this node an address":     func(s *statuses) { s.blocks[0].Spec.Node = "n2" },
		"a block that another node has meanwhile":     func(s *statuses) { s.there.Spec.Node = "n2" },
		"a block that was deleted and made meanwhile": func(s *statuses) { s.there.UID = "2" },
	} {
		t.Run(name, func(t *testing.T) {
			s := &statuses{}
			p := publisher(s)
			s.there = *s.blocks[0].DeepCopy()
			change(s)
			s.set(false, v1.Allocation{Address: "10.1.0.3", Attachment: "weft/c/eth0"})
			if err := p.Publish(t.Context()); err != nil {
				t.Error(err)
			}
			if len(s.writes) != 0 {
				t.Errorf("written: %+v", s.writes)
			}
		})
	}
}
