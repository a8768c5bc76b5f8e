package podmanager

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Difference is one thing of an attachment that is not as it was promised.
type Difference struct {
	Text string // for people, in a few words

	// Interface, Field and Have say more where it is a field of a link in the sandbox: the link's name, FieldMAC or
	// FieldMTU, and what the kernel shows. They are empty for anything else; a link that is gone has its name only.
	Interface, Field, Have string
}

// Fields of a link that later plugins of a chain may change.
const (
	FieldMAC = "mac"
	FieldMTU = "mtu"
)

// remembered is an attachment beside what the runtime remembers of its links. Where the two differ a later plugin of
// the chain has changed the link (tuning does), and the kernel must show what the runtime remembers. The MTU of a later plugin
// is also known without that: results before 1.1.0 have no MTU, and not all plugins say what they set.
type remembered struct {
	attachment *pod.Attachment
	links      []link
}

// link is one interface: what was promised, and what the runtime remembers; "" is nothing.
type link struct {
	name                         string
	promisedMAC, promisedMTU     string
	rememberedMAC, rememberedMTU string
	laterMTU                     string // that a later plugin of the chain set, and the link must have; "" if none did
}

// rememberedOf is an attachment with the MTUs that later plugins set, by interface.
func rememberedOf(a *pod.Attachment, req *weftv1.CheckRequest, later map[string]int) *remembered {
	r := &remembered{attachment: a}
	for _, in := range inSandbox(replyOf(a)) {
		_, has := findInterface(req, in.GetName())
		l := link{name: in.GetName(), promisedMAC: in.GetMac(), promisedMTU: strconv.Itoa(int(in.GetMtu())), rememberedMAC: has.GetMac()}
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

// judge describes the differences that are not the work of later plugins, and what these did and somebody undid.
func (r *remembered) judge(found []Difference) []string {
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

// undone finds what the runtime remembers and the kernel does not show, as it shows what was promised.
func (l link) undone(found []Difference) []string {
	for _, d := range found {
		if d.Interface == l.name && d.Field == "" {
			return nil // the link is not there at all
		}
	}
	var texts []string
	look := func(field, promised, remembered string) {
		if remembered == "" || strings.EqualFold(promised, remembered) || differs(found, l.name, field) {
			return
		}
		texts = append(texts, fmt.Sprintf("%s of interface %s is %s, and %s in prevResult", field, l.name, promised, remembered))
	}
	look(FieldMAC, l.promisedMAC, l.rememberedMAC)
	if l.laterMTU != l.rememberedMTU {
		look(FieldMTU, l.promisedMTU, l.rememberedMTU)
	}
	return texts
}

func differs(found []Difference, name, field string) bool {
	for _, d := range found {
		if d.Interface == name && d.Field == field {
			return true
		}
	}
	return false
}
