package vpp

import (
	"context"
	"errors"
	"fmt"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/kvscheduler"
)

// settings are changes of interfaces that are sent together; each belongs to an item of a batch.
type settings struct {
	requests []*request
	items    []int
}

func (s *settings) add(item int, r *request) {
	s.requests, s.items = append(s.requests, r), append(s.items, item)
}

func (s *settings) tag(n int, it *interfaceItem) {
	s.add(n, ask("sw_interface_tag_add_del "+it.Name, &interfaces.SwInterfaceTagAddDel{
		IsAdd: true, SwIfIndex: it.NewMeta.api(), Tag: interfaceTag(it.Name, it.Want),
	}, &interfaces.SwInterfaceTagAddDelReply{}))
}

func (s *settings) mac(n int, it *interfaceItem) {
	s.add(n, ask(fmt.Sprintf("sw_interface_set_mac_address %s %s", it.Name, it.Want.MAC), &interfaces.SwInterfaceSetMacAddress{
		SwIfIndex: it.NewMeta.api(), MacAddress: [6]byte(it.Want.MAC),
	}, &interfaces.SwInterfaceSetMacAddressReply{}))
}

func (s *settings) mtu(n int, it *interfaceItem) {
	s.add(n, ask(fmt.Sprintf("sw_interface_set_mtu %s %d", it.Name, it.Want.MTU), &interfaces.SwInterfaceSetMtu{
		SwIfIndex: it.NewMeta.api(), Mtu: []uint32{uint32(it.Want.MTU), 0, 0, 0},
	}, &interfaces.SwInterfaceSetMtuReply{}))
}

func (s *settings) flags(n int, it *interfaceItem) {
	var flags interface_types.IfStatusFlags
	what := "down"
	if it.Want.Up {
		flags, what = interface_types.IF_STATUS_API_FLAG_ADMIN_UP, "up"
	}
	s.add(n, ask(fmt.Sprintf("sw_interface_set_flags %s %s", it.Name, what), &interfaces.SwInterfaceSetFlags{
		SwIfIndex: it.NewMeta.api(), Flags: flags,
	}, &interfaces.SwInterfaceSetFlagsReply{}))
}

// send sends all and sets the items' errors. If a part of an item's changes was refused and a part was not, the outcome
// is unknown as a whole.
func (s *settings) send(ctx context.Context, c *Client, batch []interfaceItem) {
	c.exchange(ctx, s.requests...)
	applied := map[int]bool{}
	for i, r := range s.requests {
		it := &batch[s.items[i]]
		err := r.fault()
		switch {
		case err == nil:
			applied[s.items[i]] = true
		case it.Err == nil:
			it.Err = err
		}
	}
	for n := range applied {
		if batch[n].Err != nil {
			batch[n].Err = strip(batch[n].Err)
		}
	}
}

// strip takes the knowledge of the outcome off an error.
func strip(err error) error {
	known := new(kvscheduler.OpError)
	if errors.As(err, &known) {
		return known.Err
	}
	return err
}
