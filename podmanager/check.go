package podmanager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Right after an ADD the machine may not have converged yet.
const (
	convergence = time.Second
	checkEvery  = 100 * time.Millisecond
)

// Check compares the runtime's prevResult, the kernel and the dataplane with the attachment.
func (m *Manager) Check(ctx context.Context, req *weftv1.CheckRequest) (*weftv1.CheckReply, error) {
	if err := m.check(ctx, req); err != nil {
		return &weftv1.CheckReply{Error: replyError(err, nil)}, nil
	}
	return &weftv1.CheckReply{}, nil
}

func (m *Manager) check(ctx context.Context, req *weftv1.CheckRequest) error {
	if err := m.gate.admit(req.GetCaller()); err != nil {
		return err
	}
	key, err := keyOf(req.GetAttachment())
	if err != nil {
		return err
	}
	a, ok := m.Attachment(key)
	if !ok {
		return pod.Errorf(pod.CodeRefused, "check %s: no such attachment on this node: delete the sandbox and add it again",
			key)
	}
	v := verifier{m.config.Node, m.config.Chains}
	differences := append(v.compareNetns(ctx, &a, req.GetNetns()), compare(&a, req)...)
	if len(differences) == 0 {
		differences, err = v.verify(ctx, &a, req)
	}
	switch {
	case err != nil:
		return pod.Errorf(checkCode(err), "check %s: %w", a.Name(), err)
	case len(differences) > 0:
		return pod.Errorf(pod.CodeRefused, "check %s: differs from the result of ADD: %s", a.Name(),
			strings.Join(differences, "; "))
	}
	return nil
}

func checkCode(err error) uint {
	if errors.Is(err, context.DeadlineExceeded) {
		return pod.CodeTimeout
	}
	return pod.CodeRefused
}

// verifier compares attachments with the machine.
type verifier struct {
	node   Node
	chains Chains
}

func (v verifier) compareNetns(ctx context.Context, a *pod.Attachment, path string) []string {
	netns, err := v.node.Inspect(ctx, path)
	if err != nil {
		return []string{"network namespace: " + err.Error()}
	}
	if netns.Inode != a.Netns.Inode || netns.Device != a.Netns.Device {
		return []string{"network namespace: " + path + " is not the one of the ADD"}
	}
	return nil
}

// verify polls until there is no difference or the time for convergence is over.
func (v verifier) verify(ctx context.Context, a *pod.Attachment, req *weftv1.CheckRequest) ([]string, error) {
	r := rememberedOf(a, req, v.chains.End(a))
	limited, cancel := context.WithTimeout(ctx, convergence)
	defer cancel()
	var differences []string
	var err error
	_ = wait.PollUntilContextCancel(limited, checkEvery, true, func(context.Context) (done bool, _ error) {
		differences, err = v.verifyOnce(ctx, r)
		return len(differences) == 0 && err == nil, nil
	})
	return differences, errors.Join(err, ctx.Err())
}

func (v verifier) verifyOnce(ctx context.Context, r *remembered) ([]string, error) {
	found, err := v.node.Verify(ctx, r.attachment)
	if err != nil {
		return nil, err
	}
	return r.differences(found), nil
}

// compare lists the parts of the attachment that prevResult lacks. Additional content comes from other plugins of the
// chain, or was removed by an edit of the pod's annotations. Different MACs and MTUs come from plugins too; verify
// compares them with the kernel.
func compare(a *pod.Attachment, req *weftv1.CheckRequest) []string {
	var differences []string
	promised := replyOf(atADD(a))
	index := make(map[int]uint32) // of a promised interface in prevResult
	for i, want := range inSandbox(promised) {
		at, has := findInterface(req, want.GetName())
		if has == nil {
			differences = append(differences, fmt.Sprintf("interface %s is missing in prevResult", want.GetName()))
			continue
		}
		index[i] = at
		if has.GetSocketPath() != "" && has.GetSocketPath() != want.GetSocketPath() {
			differences = append(differences,
				fmt.Sprintf("socket path of interface %s is %s in prevResult, expected %s",
					want.GetName(), has.GetSocketPath(), want.GetSocketPath()))
		}
	}
	for _, want := range promised.GetIps() {
		if len(promised.GetInterfaces()) == 0 { // addresses for an interface of another plugin
			differences = append(differences, compareIPAM(req, want)...)
			continue
		}
		at, known := index[int(want.GetInterface())]
		if known && !hasIP(req, at, want) {
			differences = append(differences, fmt.Sprintf("address %s of interface %s is missing in prevResult",
				want.GetAddress(), promised.GetInterfaces()[want.GetInterface()].GetName()))
		}
	}
	for _, want := range promised.GetRoutes() {
		if len(promised.GetInterfaces()) > 0 && !hasRoute(req, want) {
			differences = append(differences, fmt.Sprintf("route %s is missing in prevResult", describeRoute(want)))
		}
	}
	return differences
}

// atADD returns an attachment without the interfaces that were made later.
func atADD(a *pod.Attachment) *pod.Attachment {
	early := clone(a)
	early.Interfaces = slices.DeleteFunc(early.Interfaces, func(i pod.Interface) bool { return i.Late })
	return early
}

// compareIPAM looks for an address on any interface, if prevResult has addresses at all.
func compareIPAM(req *weftv1.CheckRequest, want *weftv1.IP) []string {
	has := func(ip *weftv1.IP) bool { return samePrefix(ip.GetAddress(), want.GetAddress()) }
	if len(req.GetIps()) == 0 || slices.ContainsFunc(req.GetIps(), has) {
		return nil
	}
	return []string{fmt.Sprintf("address %s is missing in prevResult", want.GetAddress())}
}

// findInterface finds an interface in the sandbox by its name.
func findInterface(req *weftv1.CheckRequest, name string) (uint32, *weftv1.Interface) {
	for i, in := range req.GetInterfaces() {
		if in.GetName() == name && in.GetSandbox() != "" {
			return uint32(i), in
		}
	}
	return 0, nil
}

func hasIP(req *weftv1.CheckRequest, at uint32, want *weftv1.IP) bool {
	return slices.ContainsFunc(req.GetIps(), func(ip *weftv1.IP) bool {
		return ip.GetInterface() == at && samePrefix(ip.GetAddress(), want.GetAddress())
	})
}

func hasRoute(req *weftv1.CheckRequest, want *weftv1.Route) bool {
	return slices.ContainsFunc(req.GetRoutes(), func(r *weftv1.Route) bool {
		return samePrefix(r.GetDestination(), want.GetDestination()) && sameAddr(r.GetGateway(), want.GetGateway())
	})
}

// samePrefix compares values, because IPv6 has several text forms.
func samePrefix(a, b string) bool {
	x, errX := netip.ParsePrefix(a)
	y, errY := netip.ParsePrefix(b)
	return errX == nil && errY == nil && x == y
}

func sameAddr(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x.Unmap() == y.Unmap()
}

func describeRoute(r *weftv1.Route) string {
	if r.GetGateway() == "" {
		return r.GetDestination()
	}
	return r.GetDestination() + " via " + r.GetGateway()
}

// Difference is one deviation from an attachment.
type Difference struct {
	Text string // for people, in a few words

	// Interface, Field and Have describe a field of a link in the sandbox: the link's name, FieldMAC or FieldMTU, and
	// the kernel's value. They are empty for other differences. A missing link has only its name.
	Interface, Field, Have string
}

// Fields of a link that later plugins of a chain may change.
const (
	FieldMAC = "mac"
	FieldMTU = "mtu"
)

// remembered is an attachment with the links of prevResult. If they differ, a later plugin of the chain (such as
// tuning) changed the link, and the kernel must match prevResult. The MTU of a later plugin also comes from
// Config.Later: results before 1.1.0 have no MTU, and not all plugins report it.
type remembered struct {
	attachment *pod.Attachment
	links      []link
}

// link is one interface with the promised and the remembered values; "" means absent.
type link struct {
	name                         string
	promisedMAC, promisedMTU     string
	rememberedMAC, rememberedMTU string
	laterMTU                     string // set by a later plugin, required of the link; "" means absent
}

// rememberedOf combines an attachment, prevResult and the MTUs of later plugins by interface.
func rememberedOf(a *pod.Attachment, req *weftv1.CheckRequest, later map[string]int) *remembered {
	r := &remembered{attachment: a}
	late := make(map[string]bool)
	for _, i := range a.Interfaces {
		late[i.Name] = i.Late
	}
	for _, in := range inSandbox(replyOf(a)) {
		_, has := findInterface(req, in.GetName())
		if late[in.GetName()] {
			has = nil // prevResult has an interface that was replaced
		}
		l := link{
			name:          in.GetName(),
			promisedMAC:   in.GetMac(),
			promisedMTU:   strconv.Itoa(int(in.GetMtu())),
			rememberedMAC: has.GetMac(),
		}
		if has.GetMtu() != 0 {
			l.rememberedMTU = strconv.Itoa(int(has.GetMtu()))
		}
		if mtu := later[in.GetName()]; mtu != 0 {
			l.laterMTU = strconv.Itoa(mtu)
		}
		r.links = append(r.links, l)
	}
	return r
}

// differences returns the differences that later plugins did not cause, and their lost changes.
func (r *remembered) differences(found []Difference) []string {
	var texts []string
	for _, d := range found {
		if !r.excuses(d) {
			texts = append(texts, d.Text)
		}
	}
	for _, l := range r.links {
		texts = append(texts, l.undone(found)...)
	}
	return texts
}

func (r *remembered) excuses(d Difference) bool {
	for _, l := range r.links {
		if l.name != d.Interface {
			continue
		}
		switch d.Field {
		case FieldMAC:
			return strings.EqualFold(d.Have, l.rememberedMAC)
		case FieldMTU:
			return d.Have == l.rememberedMTU
		}
	}
	return false
}

// undone returns the values of prevResult that the kernel lost because it has the promised values again.
func (l link) undone(found []Difference) []string {
	if differs(found, l.name, "") {
		return nil // the link is missing
	}
	var texts []string
	look := func(field, promised, remembered string) {
		if remembered == "" || strings.EqualFold(promised, remembered) || differs(found, l.name, field) {
			return
		}
		texts = append(texts,
			fmt.Sprintf("%s of interface %s is %s, and %s in prevResult", field, l.name, promised, remembered))
	}
	look(FieldMAC, l.promisedMAC, l.rememberedMAC)
	if l.laterMTU != l.rememberedMTU {
		look(FieldMTU, l.promisedMTU, l.rememberedMTU)
	}
	return texts
}

func differs(found []Difference, name, field string) bool {
	return slices.ContainsFunc(found, func(d Difference) bool { return d.Interface == name && d.Field == field })
}
