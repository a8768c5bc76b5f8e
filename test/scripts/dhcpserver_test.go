package scripts_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// dhcpServer leases each client MAC the next address after the server's own, for an hour.
type dhcpServer struct {
	conn  net.PacketConn
	ended chan struct{}

	mu     sync.Mutex
	given  map[string]netip.Addr // by MAC, also after a release
	held   map[string]bool       // by MAC
	router bool                  // it offers a default route
	before func() error          // called once, before the next DISCOVER is answered
	err    error
}

// dhcpOwn is the server's address in a prefix of its own.
var dhcpOwn = netip.MustParsePrefix("10.9.0.1/24")

// startDHCP starts a server on a link of a namespace, which gets the server's address.
func startDHCP(path, link string) (*dhcpServer, error) {
	s := &dhcpServer{ended: make(chan struct{}), given: make(map[string]netip.Addr), held: make(map[string]bool)}
	err := netns.Do(path, func() (err error) {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		own := &net.IPNet{IP: dhcpOwn.Addr().AsSlice(), Mask: net.CIDRMask(dhcpOwn.Bits(), 32)}
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: own}); err != nil {
			return err
		}
		listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			controlled := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), link) })
			return errors.Join(controlled, err)
		}}
		s.conn, err = listen.ListenPacket(context.Background(), "udp4", ":67")
		return err
	})
	if err != nil {
		return nil, err
	}
	go s.serve()
	return s, nil
}

func (s *dhcpServer) close() error {
	err := s.conn.Close()
	<-s.ended
	return errors.Join(err, s.err)
}

func (s *dhcpServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// serve sends all answers by broadcast, because clients have no address yet.
func (s *dhcpServer) serve() {
	defer close(s.ended)
	everybody := &net.UDPAddr{IP: net.IPv4bcast, Port: 68}
	buffer := make([]byte, 1500)
	for {
		n, _, err := s.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var asked layers.DHCPv4
		if err == nil {
			err = asked.DecodeFromBytes(buffer[:n], gopacket.NilDecodeFeedback)
		}
		if err == nil {
			err = s.pause(&asked)
		}
		if err == nil {
			err = s.reply(&asked, everybody)
		}
		if err != nil {
			s.set(func() { s.err = errors.Join(s.err, err) })
		}
	}
}

// pause calls before, once.
func (s *dhcpServer) pause(asked *layers.DHCPv4) error {
	var before func() error
	s.set(func() {
		if kindOf(asked) == layers.DHCPMsgTypeDiscover {
			before, s.before = s.before, nil
		}
	})
	if before == nil {
		return nil
	}
	return before()
}

func (s *dhcpServer) reply(asked *layers.DHCPv4, to net.Addr) error {
	answer := s.answer(asked)
	if answer == nil {
		return nil
	}
	packet := gopacket.NewSerializeBuffer()
	if err := answer.SerializeTo(packet, gopacket.SerializeOptions{}); err != nil {
		return err
	}
	_, err := s.conn.WriteTo(packet.Bytes(), to)
	return err
}

// answer returns the reply to a message; nil = none.
func (s *dhcpServer) answer(asked *layers.DHCPv4) *layers.DHCPv4 {
	s.mu.Lock()
	defer s.mu.Unlock()
	mac := asked.ClientHWAddr.String()
	kind := layers.DHCPMsgTypeOffer
	switch kindOf(asked) {
	case layers.DHCPMsgTypeDiscover:
	case layers.DHCPMsgTypeRequest:
		kind = layers.DHCPMsgTypeAck
		s.held[mac] = true
	case layers.DHCPMsgTypeRelease:
		delete(s.held, mac)
		return nil
	default:
		return nil
	}
	if !s.given[mac].IsValid() {
		last := dhcpOwn.Addr()
		for range len(s.given) + 1 {
			last = last.Next()
		}
		s.given[mac] = last
	}
	own := dhcpOwn.Addr().AsSlice()
	options := layers.DHCPOptions{
		layers.NewDHCPOption(layers.DHCPOptMessageType, []byte{byte(kind)}),
		layers.NewDHCPOption(layers.DHCPOptServerID, own),
		layers.NewDHCPOption(layers.DHCPOptLeaseTime, binary.BigEndian.AppendUint32(nil, uint32(time.Hour.Seconds()))),
		layers.NewDHCPOption(layers.DHCPOptSubnetMask, net.CIDRMask(dhcpOwn.Bits(), 32)),
	}
	if s.router {
		options = append(options, layers.NewDHCPOption(layers.DHCPOptRouter, own))
	}
	return &layers.DHCPv4{
		Operation:    layers.DHCPOpReply,
		HardwareType: asked.HardwareType,
		HardwareLen:  asked.HardwareLen,
		Xid:          asked.Xid,
		Flags:        asked.Flags,
		YourClientIP: s.given[mac].AsSlice(),
		ClientHWAddr: asked.ClientHWAddr,
		Options:      append(options, layers.NewDHCPOption(layers.DHCPOptEnd, nil)),
	}
}

func kindOf(m *layers.DHCPv4) layers.DHCPMsgType {
	for _, o := range m.Options {
		if o.Type == layers.DHCPOptMessageType && len(o.Data) == 1 {
			return layers.DHCPMsgType(o.Data[0])
		}
	}
	return layers.DHCPMsgTypeUnspecified
}

// await waits until exactly these addresses are leased.
func (s *dhcpServer) await(want []string) error {
	slices.Sort(want)
	return eventually(timeout, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		var held []string
		for mac := range maps.Keys(s.held) {
			held = append(held, s.given[mac].String())
		}
		if slices.Sort(held); !slices.Equal(held, want) {
			return errors.Join(s.err,
				fmt.Errorf("leased are [%s], want [%s]", strings.Join(held, " "), strings.Join(want, " ")))
		}
		return nil
	})
}
