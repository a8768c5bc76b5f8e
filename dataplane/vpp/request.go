package vpp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/gso"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/codec"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
)

// request is a message to the dataplane with its answers.
//
// A plain request has one answer, reply. A dump has any number of answers of the type of reply, collected in details. A
// ping follows it, and the answer to the ping ends the dump.
type request struct {
	what  string // the operation and its object, for errors
	msg   api.Message
	reply api.Message // receives the answer; of a dump: only its type matters
	dump  bool
	fine  []api.VPPApiError // refusals that count as success
	read  bool              // changes nothing, although its message can

	details []api.Message
	err     error // of the exchange
	done    chan struct{}
	once    sync.Once
	transit
}

// transit is the state of a request on a session, which finds the request of an answer by it.
type transit struct {
	sent    bool
	context uint32
	replyID uint16
	pingOf  *request // the dump that this ping ends
}

// ask returns a plain request. The operation and its object are in what, for errors.
func ask(what string, msg, reply api.Message) *request {
	return &request{what: what, msg: msg, reply: reply}
}

func newPing() *request {
	return ask("control_ping", &memclnt.ControlPing{}, &memclnt.ControlPingReply{})
}

// fineIf sets refusals that count as success, because the dataplane has the wanted state.
func (r *request) fineIf(retvals ...api.VPPApiError) *request {
	r.fine = retvals
	return r
}

func askAll(msg, details api.Message) *request {
	return &request{what: msg.GetMessageName(), msg: msg, reply: details, dump: true}
}

var reads = map[string]bool{
	(&memclnt.ControlPing{}).GetMessageName():                  true,
	(&interfaces.WantInterfaceEvents{}).GetMessageName():       true,
	(&vpe.ShowVersion{}).GetMessageName():                      true,
	(&vlib.ShowThreads{}).GetMessageName():                     true,
	(&interfaces.SwInterfaceGetTable{}).GetMessageName():       true,
	(&ip.SwInterfaceIP6GetLinkLocalAddress{}).GetMessageName(): true,
}

func (r *request) changes() bool { return !r.dump && !r.read && !reads[r.msg.GetMessageName()] }

func listOf[D api.Message](r *request) []D {
	list := make([]D, len(r.details))
	for i, d := range r.details {
		list[i] = d.(D)
	}
	return list
}

func mapOf[D api.Message, K comparable, V any](r *request, entry func(D) (K, V)) map[K]V {
	found := make(map[K]V, len(r.details))
	for _, d := range listOf[D](r) {
		k, v := entry(d)
		found[k] = v
	}
	return found
}

// last reports whether a message with that number is the only answer to the request. A dump ends with its ping.
func (r *request) last(id uint16) bool { return id == r.replyID && !r.dump }

// answer handles a message with the request's context. Only the session's reader calls it.
func (r *request) answer(id uint16, data []byte) {
	if id != r.replyID {
		return // an event: its layout has no context
	}
	switch {
	case r.pingOf != nil:
		r.pingOf.finish(nil)
	case r.dump:
		r.detail(data)
	default:
		r.finish(decode(data, r.reply))
	}
}

func (r *request) detail(data []byte) {
	m := reflect.New(reflect.TypeOf(r.reply).Elem()).Interface().(api.Message)
	if err := decode(data, m); err != nil {
		r.finish(err)
		return
	}
	select {
	case <-r.done: // abandoned: its owner reads details
	default:
		r.details = append(r.details, m)
	}
}

// lists are the messages with a list that has a length of 32 bits: the offset of the length, and the size of an item.
var lists = map[string]struct{ count, item int }{
	"bridge_domain_details": {89, 9},
	"acl_details":           {74, 48},
	"macip_acl_details":     {74, 31},
	"show_threads_reply":    {10, 148},
}

var errList = errors.New("a list is longer than its message")

func decode(data []byte, m api.Message) error {
	// The codec allocates a list before it checks the length of the message.
	if l, ok := lists[m.GetMessageName()]; ok && len(data) >= l.count+4 {
		if items := binary.BigEndian.Uint32(data[l.count:]); uint64(items)*uint64(l.item) > uint64(len(data)-l.count-
			4) {
			return fmt.Errorf("read %s: %w", m.GetMessageName(), errList)
		}
	}
	if err := codec.DecodeMsg(data, m); err != nil {
		return fmt.Errorf("read %s: %w", m.GetMessageName(), err)
	}
	return nil
}

func (r *request) finish(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.done)
	})
}

func (r *request) retval() api.VPPApiError {
	field := reflect.ValueOf(r.reply).Elem().FieldByName("Retval")
	if r.dump || !field.IsValid() {
		return 0
	}
	return api.VPPApiError(field.Int())
}

// fault returns the error of a request for its object: an *OpError if the dataplane has not changed, another error if
// the outcome is unknown.
func (r *request) fault() error {
	switch retval := r.retval(); {
	case r.err != nil && r.sent:
		return fmt.Errorf("%s: %w", r.what, r.err)
	case r.err != nil:
		missing := new(MissingMessage)
		return &kvscheduler.OpError{
			Err: fmt.Errorf("%s: %w", r.what, r.err), Outcome: kvscheduler.NotApplied,
			Permanent: errors.As(r.err, &missing),
		}
	case retval != 0 && !slices.Contains(r.fine, retval):
		return &kvscheduler.OpError{
			Err: fmt.Errorf("%s: %w", r.what, retval), Outcome: kvscheduler.NotApplied, Permanent: isPermanent(retval),
		}
	}
	return nil
}

// refused reports whether the dataplane answered with one of the retvals.
func (r *request) refused(retvals ...api.VPPApiError) bool {
	return r.err == nil && slices.Contains(retvals, r.retval())
}

// isPermanent reports whether the dataplane refuses the same value for ever.
func isPermanent(retval api.VPPApiError) bool {
	switch retval {
	case api.INVALID_VALUE, api.INVALID_VALUE_2, api.UNIMPLEMENTED, api.ADDRESS_LENGTH_MISMATCH, api.INVALID_ARGUMENT,
		api.INVALID_ADDRESS_FAMILY, api.UNSUPPORTED, api.ILLEGAL_NAME,
		api.FIB_PATH_UNSUPPORTED_NH_PROTO, api.INVALID_PREFIX_LENGTH:
		return true
	}
	return false
}

// permanent returns an error from before any request was sent.
func permanent(err error) error {
	return &kvscheduler.OpError{Err: err, Outcome: kvscheduler.NotApplied, Permanent: true}
}

// MissingMessage says that the dataplane lacks a message, or knows another one of that name.
type MissingMessage struct {
	Name   string
	CRC    string
	Plugin string // of VPP, with this message; "" if VPP itself has it
}

func newMissingMessage(m api.Message) *MissingMessage {
	return &MissingMessage{Name: m.GetMessageName(), CRC: m.GetCrcString(), Plugin: pluginOf(m)}
}

// Error names message and CRC.
func (e *MissingMessage) Error() string {
	return fmt.Sprintf("the dataplane lacks the API message %s with CRC %s", e.Name, e.CRC)
}

// pluginOf returns the plugin of VPP that has message m.
func pluginOf(m api.Message) string {
	switch file := path.Base(reflect.TypeOf(m).Elem().PkgPath()); file {
	case "acl", "af_packet", "memif", "tracedump", "vxlan":
		return file + "_plugin.so"
	case "tapv2": // a part of VPP itself before 26.06
		return "tap_plugin.so"
	case "policer": // likewise
		return "policer_plugin.so"
	}
	return ""
}

func messageKey(m api.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }

func firstFault(requests []*request) error {
	for _, r := range requests {
		if err := r.fault(); err != nil {
			return err
		}
	}
	return nil
}

func (s *steps) tag(n int, it *interfaceItem) {
	s.add(n, ask("sw_interface_tag_add_del "+it.Name, &interfaces.SwInterfaceTagAddDel{
		IsAdd: true, SwIfIndex: it.NewMeta.api(), Tag: interfaceTag(it.Name, it.Want),
	}, &interfaces.SwInterfaceTagAddDelReply{}))
}

func (s *steps) mac(n int, it *interfaceItem) {
	s.add(n,
		ask(fmt.Sprintf("sw_interface_set_mac_address %s %s", it.Name, it.Want.MAC),
			&interfaces.SwInterfaceSetMacAddress{
				SwIfIndex: it.NewMeta.api(), MacAddress: [6]byte(it.Want.MAC),
			}, &interfaces.SwInterfaceSetMacAddressReply{}))
}

func (s *steps) mtu(n int, it *interfaceItem) {
	s.add(n, ask(fmt.Sprintf("sw_interface_set_mtu %s %d", it.Name, it.Want.MTU), &interfaces.SwInterfaceSetMtu{
		SwIfIndex: it.NewMeta.api(), Mtu: []uint32{uint32(it.Want.MTU), 0, 0, 0},
	}, &interfaces.SwInterfaceSetMtuReply{}))
}

// gso segments packets that are longer than the MTU. Without it VPP sends long packets inside VXLAN to the kernel,
// which drops them.
func (s *steps) gso(n int, it *interfaceItem) {
	s.add(n, ask("feature_gso_enable_disable "+it.Name, &gso.FeatureGsoEnableDisable{
		SwIfIndex: it.NewMeta.api(), EnableDisable: true,
	}, &gso.FeatureGsoEnableDisableReply{}))
}

func (s *steps) flags(n int, it *interfaceItem) {
	var flags interface_types.IfStatusFlags
	what := "down"
	if it.Want.Up {
		flags = interface_types.IF_STATUS_API_FLAG_ADMIN_UP
		what = "up"
	}
	s.add(n, ask(fmt.Sprintf("sw_interface_set_flags %s %s", it.Name, what), &interfaces.SwInterfaceSetFlags{
		SwIfIndex: it.NewMeta.api(), Flags: flags,
	}, &interfaces.SwInterfaceSetFlagsReply{}))
}

func apiAddress(a netip.Addr) ip_types.Address {
	if a.Is4() {
		return ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: ip_types.AddressUnionIP4(a.As4())}
	}
	return ip_types.Address{Af: ip_types.ADDRESS_IP6, Un: ip_types.AddressUnionIP6(a.As16())}
}

func address(a ip_types.Address) netip.Addr {
	if a.Af == ip_types.ADDRESS_IP4 {
		return netip.AddrFrom4(a.Un.GetIP4())
	}
	return netip.AddrFrom16(a.Un.GetIP6())
}

func apiPrefix(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: apiAddress(p.Addr()), Len: uint8(p.Bits())}
}

func prefix(p ip_types.Prefix) netip.Prefix {
	return netip.PrefixFrom(address(p.Address), int(p.Len))
}

// interfacePrefix is prefix for the API's type of interface addresses.
func interfacePrefix(p ip_types.AddressWithPrefix) netip.Prefix { return prefix(ip_types.Prefix(p)) }

// families in the order of the dumps.
var families = []netaddr.Family{netaddr.IP4, netaddr.IP6}

// isLinkLocal reports whether an address is the link-local address, which has messages of its own.
func isLinkLocal(p netip.Prefix) bool {
	return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() && p.Bits() == 128
}

// linkLocalOf derives a link-local address from a MAC (RFC 4291, appendix A).
func linkLocalOf(m netaddr.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0:  0xfe,
		1:  0x80,
		8:  m[0] ^ 2,
		9:  m[1],
		10: m[2],
		11: 0xff,
		12: 0xfe,
		13: m[3],
		14: m[4],
		15: m[5],
	})
}

// prefixesOf returns the addresses in an answer, without the link-local address own of the MAC.
func prefixesOf(r *request, own netip.Addr) []netip.Prefix {
	var found []netip.Prefix
	if reply, ok := r.reply.(*ip.SwInterfaceIP6GetLinkLocalAddressReply); ok {
		a := netip.AddrFrom16(reply.IP)
		if r.retval() == 0 && a.IsLinkLocalUnicast() && a != own {
			found = append(found, netaddr.Single(a))
		}
		return found
	}
	for _, d := range listOf[*ip.IPAddressDetails](r) {
		if p := interfacePrefix(d.Prefix); !isLinkLocal(p) {
			found = append(found, p)
		}
	}
	return found
}
