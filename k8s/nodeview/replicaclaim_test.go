package nodeview_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

// replica puts a pod db-0 of a StatefulSet, or of another kind, on n1.
func (l *lab) replica(kind string) pod.ID {
	yes := true
	l.Pod("db-0", "uid of db-0", "n1", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: kind, Name: "db", UID: "set", Controller: &yes,
		}}
	})
	return pod.ID{Namespace: "default", Name: "db-0", UID: "uid of db-0"}
}

// claimOfReplica puts the claim of db-0, which a StatefulSet owns.
func (l *lab) claimOfReplica(set string) {
	l.Put(claimResource, &npwg.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "db-0.t1", UID: "u", Annotations: map[string]string{npwg.AnnotationSeed: "seed"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: types.UID(set),
			}},
		},
		Spec: npwg.IPAMClaimSpec{Network: "blue", Interface: "t1"},
	})
}

func TestAReplicaWaitsForItsClaim(t *testing.T) {
	l := newLab(t)
	id := l.replica("StatefulSet")
	c := l.Known(func(c *nodeview.Config) { c.Question = time.Minute })
	l.Eventually("the pod is known", func() bool { return c.Pod(id) != nil })
	result := make(chan error, 1)
	go func() {
		claim, err := c.ReplicaClaim(t.Context(), id, "db-0.t1")
		if err == nil && (claim.Network != "blue" || claim.Owner != "set" || claim.Seed != "seed") {
			err = fmt.Errorf("the claim is %+v", claim)
		}
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	l.claimOfReplica("set")
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestAReplicaWithoutItsClaimTriesAgain(t *testing.T) {
	l := newLab(t)
	id := l.replica("StatefulSet")
	c := l.Known(func(c *nodeview.Config) { c.Question = 200 * time.Millisecond })
	l.Eventually("the pod is known", func() bool { return c.Pod(id) != nil })
	refused := func(want string, code uint) {
		t.Helper()
		_, err := c.ReplicaClaim(t.Context(), id, "db-0.t1")
		coded, _ := errors.AsType[*pod.Error](err)
		if coded == nil || coded.Code != code || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q with code %d", err, want, code)
		}
	}
	refused("there is no IPAMClaim default/db-0.t1 yet: weft-controller makes it if controller.persistentIPs", pod.CodeTryAgain)
	l.claimOfReplica("former set")
	refused("IPAMClaim default/db-0.t1 is of an earlier StatefulSet db and is deleted with it; try again", pod.CodeTryAgain)
	l.replica("ReplicaSet")
	l.Eventually("the pod has changed", func() bool { return c.Pod(id).OwnerReferences[0].Kind == "ReplicaSet" })
	refused("this one belongs to ReplicaSet db; name an IPAMClaim", pod.CodeInvalidAnnotation)
}

// After a restart of the agent the API server may be away.
func TestAReplicaOfAnEarlierRunNeedsNoAPIServer(t *testing.T) {
	l := newLab(t)
	held := pod.IPAMClaim{
		Namespace: "default", Name: "db-0.t1", UID: "u", Network: "blue",
		Addresses: []netip.Addr{netip.MustParseAddr("10.5.0.7")},
	}
	c, err := nodeview.New(nodeview.Config{
		Node: "n1", Client: l.Client(), Question: 200 * time.Millisecond, // nothing is watched
		Known: &nodeview.View{IPAMClaims: []pod.IPAMClaim{held}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Disconnect()
	id := pod.ID{Namespace: "default", Name: "db-0", UID: "uid of db-0"}
	if claim, err := c.ReplicaClaim(t.Context(), id, "db-0.t1"); err != nil || claim.UID != "u" {
		t.Errorf("claim %+v, %v", claim, err)
	}
	if _, err := c.ReplicaClaim(t.Context(), id, "db-1.t1"); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("without a claim: %v", err)
	}
}

func TestAFreeClaimHoldsNoAddress(t *testing.T) {
	l := newLab(t)
	l.claimOfReplica("set")
	c := l.Known(nil)
	var claim pod.IPAMClaim
	l.Eventually("the claim is known", func() (isFree bool) {
		claim, isFree = c.FreeClaim("default", "db-0.t1")
		return isFree
	})
	if _, isFree := c.FreeClaim("default", "db-1.t1"); isFree {
		t.Error("a claim that does not exist is free")
	}
	own := []netip.Prefix{netip.MustParsePrefix("10.5.0.7/24")}
	if err := c.Assign(t.Context(), claim, "db-0", own); err != nil {
		t.Fatal(err)
	}
	l.Eventually("the claim is not free", func() bool {
		_, isFree := c.FreeClaim("default", "db-0.t1")
		return !isFree
	})
}
