package policies_test

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// stopWatches makes the API server answer questions, but show no changes.
func (l *lab) stopWatches() {
	l.Fail(func(r *http.Request) int {
		if r.URL.Query().Get("watch") != "" {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	l.DropWatches()
}

// A pod of a StatefulSet has the name of its predecessor, and may have other labels. It never gets the rules of the
// predecessor.
func TestSuccessorDoesNotGetTheRulesOfItsPredecessor(t *testing.T) {
	for name, uid := range map[string]string{"the runtime passes the UID": "uid-new", "the runtime does not": ""} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			l.policy("p", onlyFrom("db", "web"))
			l.pod("set-0", "n1", "10.1.0.5", nil) // open
			l.pod("web", "n2", "10.1.1.5", nil)
			l.run()
			was := attachment("set-0", "eth0 default 10.1.0.5", "net1 red 10.6.0.5")
			l.admit(was)
			if !l.permits("set-0", "eth0", policy.Ingress, "10.1.1.9", 80) {
				t.Fatal("the predecessor is not open")
			}
			l.stopWatches()
			l.pod("set-0", "n1", "", func(o *corev1.Pod) {
				o.UID = "uid-new"
				o.Labels = map[string]string{"app": "db"}
			})
			is := attachment("set-0", "eth0 default 10.1.0.6")
			is.Key.ContainerID = "new"
			is.Created = time.Unix(2, 0)
			is.Pod.UID = uid
			l.Learn(t.Context(), is.Pod)
			l.admit(is)
			check := func(when string) {
				t.Helper()
				if l.permits("set-0", "eth0", policy.Ingress, "10.1.1.9", 80) ||
					!l.permits("set-0", "eth0", policy.Ingress, "10.1.1.5", 80) {
					t.Errorf("%s: the pod does not have the rules of its labels", when)
				}
			}
			check("while the watch shows the predecessor")
			if l.permits("set-0", "net1", policy.Ingress, "10.6.0.9", 80) {
				t.Error("an interface of the predecessor that the pod does not have is open")
			}
			l.Dismiss(was)
			check("without the predecessor's sandbox")
			l.Fail(nil)
			l.pod("seen", "n2", "10.1.1.6", func(o *corev1.Pod) { o.Labels["app"] = "web" })
			l.eventually("the watch shows changes", l.from("set-0", "eth0", "10.1.1.6"))
			check("when the watch has shown the pod")
		})
	}
}

// A pod that no policy selects is open, although the sandbox of its predecessor still exists and has an interface of
// the same name: kubelet was away while the StatefulSet was recreated. It stays open when the sandbox ends.
func TestSuccessorWithoutPoliciesIsOpen(t *testing.T) {
	l := newLab(t, nil)
	l.pod("set-0", "n1", "10.1.0.5", nil)
	l.run()
	was := attachment("set-0", "eth0 default 10.1.0.5", "net1 red 10.6.0.5")
	l.admit(was)
	l.pod("set-0", "n1", "", func(o *corev1.Pod) { o.UID = "uid-new" })
	l.eventually("the predecessor is closed", func() bool {
		return !l.permits("set-0", "eth0", policy.Ingress, "10.1.1.9", 80)
	})
	is := attachment("set-0", "eth0 default 10.1.0.6")
	is.Key.ContainerID = "new"
	is.Created = time.Unix(2, 0)
	is.Pod.UID = "uid-new"
	l.Learn(t.Context(), is.Pod)
	l.admit(is)
	isOpen := func() bool { return l.permits("set-0", "eth0", policy.Ingress, "10.1.1.9", 80) }
	if !isOpen() {
		t.Error("the pod is closed because of its predecessor")
	}
	if l.permits("set-0", "net1", policy.Ingress, "10.6.0.9", 80) {
		t.Error("an interface of the predecessor that the pod does not have is open")
	}
	l.Dismiss(was)
	if !isOpen() {
		t.Error("the pod is closed when the sandbox of its predecessor has ended")
	}
}

// What was read of a pod at its ADD is forgotten with its last attachment.
func TestLabelsOfAPodThatIsGoneAreForgotten(t *testing.T) {
	l := newLab(t, nil).run()
	l.stopWatches()
	l.pod("db", "n1", "10.1.0.5", nil)
	a := attachment("db", "eth0 default 10.1.0.5")
	l.Learn(t.Context(), a.Pod)
	if l.admit(a); !l.from("db", "eth0", "10.1.1.9")() {
		t.Fatal("the pod is closed although the API server has its labels")
	}
	l.Dismiss(a)
	if l.admit(a); l.from("db", "eth0", "10.1.1.9")() {
		t.Error("the labels are still known")
	}
}

func TestSuccessorIsClosedWithoutItsLabels(t *testing.T) {
	l := newLab(t, nil)
	l.pod("set-0", "n1", "10.1.0.5", nil)
	l.run()
	l.Disconnect()
	is := attachment("set-0", "eth0 default 10.1.0.6")
	is.Pod.UID = "uid-new"
	l.Learn(t.Context(), is.Pod)
	l.admit(is)
	if l.permits("set-0", "eth0", policy.Ingress, "10.1.1.9", 80) {
		t.Error("the pod has the rules of its predecessor")
	}
	l.Reconnect()
	l.pod("set-0", "n1", "", func(o *corev1.Pod) { o.UID = types.UID("uid-new") })
	l.eventually("the pod is open when the watch has shown it", l.from("set-0", "eth0", "10.1.1.9"))
}

// All attachments of a pod get its rules: with Multus each network is one.
func TestEachAttachmentOfAPodGetsItsRules(t *testing.T) {
	l := newLab(t, nil)
	l.peersOn("blue", "web")
	l.pod("db", "n1", "10.1.0.5", nil)
	l.run()
	first := attachment("db", "eth0 default 10.1.0.5")
	if rules := l.admit(first); rules["eth0"][policy.Ingress] != nil {
		t.Errorf("an interface without policies has rules: %v", rules)
	}
	second := attachment("db", "net2 blue 10.7.0.5") // the API server does not know this interface
	second.Key.IfName = "net2"
	second.Created = time.Unix(2, 0)
	rules := l.admit(second)
	if rules["net2"][policy.Ingress] == nil {
		t.Error("the second attachment has no rules")
	}
	l.Dismiss(first)
	if l.permits("db", "net2", policy.Ingress, "10.1.1.9", 80) {
		t.Error("the pod is open without the first attachment")
	}
}

// All interfaces of a pod that is not known are closed.
func TestEachInterfaceOfAnUnknownPodIsClosed(t *testing.T) {
	l := newLab(t, nil).run()
	l.Learn(t.Context(), pod.ID{Namespace: "a", Name: "db", UID: "uid-db"})
	l.admit(attachment("db", "eth0 default 10.1.0.5", "net1 red 10.6.0.5", "net2 blue 10.7.0.5"))
	other := attachment("db", "net3 green 10.8.0.5")
	other.Key.IfName = "net3"
	l.admit(other)
	for _, nic := range []string{"eth0", "net1", "net2", "net3"} {
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			if l.permits("db", nic, d, "10.1.1.9", 80) {
				t.Errorf("%s of %s is open", d, nic)
			}
		}
	}
	l.pod("db", "n1", "10.1.0.5", nil)
	for _, nic := range []string{"eth0", "net1", "net2", "net3"} {
		l.eventually(nic+" is open when the pod is known", l.from("db", nic, "10.1.1.9"))
	}
}

// Before all objects are known an admission returns the rules of its attachment only: the others keep theirs.
func TestSecondAttachmentIsDecidedAloneBeforeAllIsKnown(t *testing.T) {
	l := newLab(t, nil)
	l.Admit(attachment("db", "eth0 default 10.1.0.5"), nodeLink)
	other := attachment("db", "net1 red 10.6.0.5")
	other.Key.IfName = "net1"
	rules, isWhole := l.Admit(other, nodeLink)
	if _, has := rules["eth0"]; has || isWhole || len(rules) != 1 || rules["net1"][policy.Ingress] == nil ||
		rules["net1"][policy.Egress] == nil {
		t.Errorf("rules %v, of all attachments: %t", rules, isWhole)
	}
	l.pod("db", "n1", "10.1.0.5", nil)
	l.run()
	if rules, isWhole = l.Admit(other, nodeLink); !isWhole || len(rules) != 0 {
		t.Errorf("when all is known: rules %v, of all attachments: %t", rules, isWhole)
	}
}
